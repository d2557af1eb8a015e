-- Ends the holds of a request. Mode `settle` books the charges, whatever was held; `drop` does so for a request whose
-- reserve was never answered; `recover` books what is held, or nothing where the charge is 0, if the lease of its owner
-- has run out.
-- KEYS: epoch, request, the owner's requests, owners; the accounts of the holds; then those above them.
-- ARGV: epoch, mode, request id, owner, how long to remember (ms), number of holds; for each: account, window start,
-- charge; then the ids of the accounts above.
-- Reply: {0} was done before, {1} done, {2} corrects what was recovered, {3} nothing was held, each followed by the
-- bookings of children in their parents that have changed; {4, account}: nothing is done, those above it are needed.
if strange() then return EPOCH end

local mode, count = ARGV[2], tonumber(ARGV[6])
local request, keys = all(KEYS[2]), {}
for i = 1, count do keys[ARGV[4 + 3 * i]] = KEYS[4 + i] end
for i = 1, #KEYS - 4 - count do keys[ARGV[6 + 3 * count + i]] = KEYS[4 + count + i] end

local function booking(i)
  local id, start, charge = ARGV[4 + 3 * i], ARGV[5 + 3 * i], tonumber(ARGV[6 + 3 * i])
  local amount = tonumber(request[start .. '|' .. id] or 0)
  if request.s then return id, start, 0, 0 end
  if request.r then return id, start, 0, charge - amount end
  return id, start, -amount, charge
end

-- What is booked in a closed or overrun child is booked in its parents too.
local function climbs(id, held, charged)
  local child = all(keys[id])
  local now = tonumber(child['s:0'] or 0) + tonumber(child['h:0'] or 0)
  return child.x or math.max(now, now + held + charged) > tonumber(child.size)
end

if mode == 'recover' then
  local time, lease = redis.call('TIME'), redis.call('ZSCORE', KEYS[4], ARGV[4])
  if request.o ~= ARGV[4] then redis.call('SREM', KEYS[3], ARGV[3]) end
  if request.o ~= ARGV[4] or (lease and tonumber(lease) > tonumber(time[1]) * 1000) then return {0} end
end
for i = 1, count do
  local id, _, held, charged = booking(i)
  if mode == 'recover' and charged ~= 0 and held + charged ~= 0 then return {0} end
  local up = redis.call('HGET', keys[id], 'up')
  if up and not keys[string.match(up, '^%d+|(.*)$')] and climbs(id, held, charged) then return {4, id} end
end

local reply = {request.s and 0 or request.r and 2 or (request.o or mode == 'drop') and 1 or 3}
for i = 1, count do
  local id, start, held, charged = booking(i)
  -- An account that has expired meanwhile holds nothing.
  if redis.call('HEXISTS', keys[id], 'h:' .. start) == 1 then add(keys[id], 'h:' .. start, held) end
  add(keys[id], 's:' .. start, charged)
end
for i = 1, count do
  local id = ARGV[4 + 3 * i]
  local up = redis.call('HGET', keys[id], 'up')
  if up then follow(id, keys, reply, request.s and keys[string.match(up, '^%d+|(.*)$')]) end
end

-- A settled request stays its owner's until its rows are in the ledger: should the owner die before, whoever recovers
-- it writes them, from c|<window start>|<account> = <held>|<charged>.
if mode ~= 'settle' then redis.call('SREM', KEYS[3], ARGV[3]) end
if mode == 'recover' then
  redis.call('HDEL', KEYS[2], 'o')
  redis.call('HSET', KEYS[2], 'r', 1)
  for i = 1, count do redis.call('HSET', KEYS[2], ARGV[5 + 3 * i] .. '|' .. ARGV[4 + 3 * i], ARGV[6 + 3 * i]) end
elseif not request.s then
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[2], 's', 1)
  if mode == 'settle' then redis.call('SADD', KEYS[3], ARGV[3]) end
  for i = 1, count do
    local id, start, charge = ARGV[4 + 3 * i], ARGV[5 + 3 * i], ARGV[6 + 3 * i]
    redis.call('HSET', KEYS[2], 'c|' .. start .. '|' .. id, (request[start .. '|' .. id] or 0) .. '|' .. charge)
  end
end
if not request.s then redis.call('PEXPIRE', KEYS[2], ARGV[5]) end
return reply
