-- Adds to what a session has seen.
-- KEYS: epoch, session. ARGV: epoch; then the fields of its hash.
-- Reply: {1}.
if strange() then return EPOCH end
for i = 2, #ARGV do redis.call('HSET', KEYS[2], ARGV[i], 1) end
return {1}
