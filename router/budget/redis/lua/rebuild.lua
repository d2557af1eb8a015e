-- Writes counters anew, from the ledger, while there is no epoch: nothing is admitted before. One process at a time.
-- KEYS: epoch, lock; then the hashes. ARGV: the process, how long it may take (ms), epoch if these are the last or
-- empty; for each hash: how long it is kept (ms) or empty, number of fields, fields and values.
-- Reply: 1; 0 where another process has done it or is at it.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if (redis.call('GET', KEYS[2]) or ARGV[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])

local at = 4
for i = 3, #KEYS do
  local ms, count = ARGV[at], tonumber(ARGV[at + 1])
  redis.call('DEL', KEYS[i])
  for field = at + 2, at + 2 * count, 2 do redis.call('HSET', KEYS[i], ARGV[field], ARGV[field + 1]) end
  if ms ~= '' then redis.call('PEXPIRE', KEYS[i], ms) end
  at = at + 2 + 2 * count
end

if ARGV[3] ~= '' then
  redis.call('SET', KEYS[1], ARGV[3])
  redis.call('DEL', KEYS[2])
end
return 1
