-- What a session has seen.
-- KEYS: epoch, session. ARGV: epoch.
-- Reply: the fields of its hash.
if strange() then return EPOCH end
return redis.call('HKEYS', KEYS[2])
