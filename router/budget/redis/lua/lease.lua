-- Renews the lease of a process, by the server's clock: the gateways' own may jump.
-- KEYS: epoch, owners, policies (owner → hash). ARGV: epoch, owner, lease, hash of the policy that it is under.
-- Reply: the owners whose lease has run out; the hashes of all.
if strange() then return EPOCH end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[2])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[4])
return {redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now), redis.call('HVALS', KEYS[3])}
