-- KEYS: epoch; then the accounts. ARGV: epoch; for each account: window start, since.
-- Reply: spent and held of each.
if strange() then return EPOCH end
local reply = {}
for i = 1, #KEYS - 1 do
  local spent, held = pot(KEYS[1 + i], ARGV[2 * i], ARGV[2 * i + 1])
  reply[2 * i - 1], reply[2 * i] = spent, held
end
return reply
