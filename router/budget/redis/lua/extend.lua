-- Holds more for a request: the same in all accounts, as much as all of them have left.
-- KEYS: epoch, request; then the accounts.
-- ARGV: epoch, now, more usd, more thinking tokens; then for each account: id, unit, kind, split (1 or 0), limit, window
-- start, since.
-- Reply: {1, usd, thinking}; {0} for a request that holds nothing any more.
if strange() then return EPOCH end

local request, more = all(KEYS[2]), {tonumber(ARGV[3]), tonumber(ARGV[4])}
if not request.o then return {0} end

local function each(visit)
  for i = 3, #KEYS do
    visit(KEYS[i], 5 + (i - 3) * 7)
  end
end

each(function(key, at)
  if ARGV[at + 2] == 'soft' then return end
  local unit, limit = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 4])
  local spent, held = pot(key, ARGV[at + 5], ARGV[at + 6])
  local ended = ARGV[at + 3] == '1' and shut(key, tonumber(ARGV[2]))
  more[unit] = math.max(0, math.min(more[unit], ended and 0 or limit - spent - held))
end)
each(function(key, at)
  local extra = more[tonumber(ARGV[at + 1])]
  add(key, 'h:' .. ARGV[at + 5], extra)
  add(KEYS[2], ARGV[at + 5] .. '|' .. ARGV[at], extra)
end)
add(KEYS[2], 'u', more[1])
add(KEYS[2], 't', more[2])
return {1, more[1], more[2]}
