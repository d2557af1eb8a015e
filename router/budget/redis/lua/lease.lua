-- Renews the lease of a process, by the server's clock: the gateways' own may jump.
-- KEYS: epoch, owners. ARGV: epoch, owner, lease.
-- Reply: the owners whose lease has run out.
if strange() then return EPOCH end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[2])
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)
