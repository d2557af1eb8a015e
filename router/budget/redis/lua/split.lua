-- Opens a child and holds its limit in its parent.
-- KEYS: epoch, parent, child, the child's document, the open children, a request of the child's id.
-- ARGV: epoch, now, child, document, limit, end or empty, outlives (1 or 0), parent, split (1 or 0), limit, window start, since.
-- Reply: {1}; {0, spent, held} of a parent that can't have it; {2} for an id in use.
if strange() then return EPOCH end
if redis.call('EXISTS', KEYS[3], KEYS[4], KEYS[6]) > 0 then return {2} end

local limit, parent, start = tonumber(ARGV[5]), KEYS[2], ARGV[11]
local spent, held = pot(parent, start, ARGV[12])
local ended = ARGV[9] == '1' and shut(parent, tonumber(ARGV[2]))
if ended or ARGV[7] == '1' or tonumber(ARGV[10]) - spent - held < limit then return {0, spent, held} end

redis.call('HINCRBY', parent, 'h:' .. start, limit)
redis.call('HINCRBY', parent, 'p', 1)
-- An account stays while there are children of it.
redis.call('HSET', KEYS[3], 'up', start .. '|' .. ARGV[8], 'size', limit, 'ph', limit, 'ps', 0, 'e', ARGV[6],
  't', redis.call('PTTL', parent))
redis.call('PERSIST', parent)
redis.call('SET', KEYS[4], ARGV[4])
redis.call('SADD', KEYS[5], ARGV[3])
return {1}
