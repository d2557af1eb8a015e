-- Ends children: those below come before those above, and none that is open may be missing.
-- KEYS: epoch, the open children; for each child: account, document; then the accounts above them.
-- ARGV: epoch, how long to remember (ms), number of children; for each: id, document; then the ids of the accounts above.
-- Reply: {1} and the bookings of children in their parents that have changed; {0}: there are more below than given.
if strange() then return EPOCH end

local count, keys, open, below = tonumber(ARGV[3]), {}, {}, {}
for i = 1, count do keys[ARGV[2 + 2 * i]] = KEYS[1 + 2 * i] end
for i = 1, #KEYS - 2 - 2 * count do keys[ARGV[3 + 2 * count + i]] = KEYS[2 + 2 * count + i] end

for i = 1, count do
  local id, key = ARGV[2 + 2 * i], KEYS[1 + 2 * i]
  local child = redis.call('HMGET', key, 'up', 'x', 'p', 't')
  if child[1] and not child[2] then
    if tonumber(child[3] or 0) ~= (below[id] or 0) then return {0} end
    local parent = string.match(child[1], '^%d+|(.*)$')
    below[parent] = (below[parent] or 0) + 1
    open[#open + 1] = {id, key, KEYS[2 + 2 * i], ARGV[3 + 2 * i], keys[parent], tonumber(child[4])}
  end
end

local reply = {1}
for _, child in ipairs(open) do
  local id, key, record, document, parent, ttl = unpack(child)
  redis.call('HSET', key, 'x', 1)
  redis.call('SET', record, document, 'PX', ARGV[2])
  redis.call('PEXPIRE', key, ARGV[2])
  redis.call('SREM', KEYS[2], id)
  if redis.call('HINCRBY', parent, 'p', -1) == 0 then
    redis.call('HDEL', parent, 'p')
    if ttl > 0 then redis.call('PEXPIRE', parent, ttl) end
  end
  follow(id, keys, reply, true)
end
return reply
