-- Holds in all accounts, or in none.
-- KEYS: epoch, request, the owner's requests, owners; then for each account: itself, its budget's values.
-- ARGV: epoch, request id, owner, now, lease; tight and whole of usd, then of thinking tokens; a bit for each target of
-- the request (0: not needed); then for each account: id, unit (1 usd, 2 thinking), kind (all, soft, or the bits of its
-- targets), split (1 or 0), limit, window start, since, keep ms, value, size (0: as granted), what must be left.
-- Reply: {1, usd, thinking, held in each account or -1 (what is left of one with a size), room for more usd and thinking};
-- {0, account, spent, held}; {2} for a request seen before.
if strange() then return EPOCH end
if redis.call('EXISTS', KEYS[2]) == 1 then return {2} end

-- AMPLE is router.types.account.AMPLE. A rolling window has a hundred windows that count, of two fields each: with MANY
-- the old ones go, not at once, since a clock may have jumped ahead and come back.
local AMPLE, MANY, FIRST, WIDTH = 25, 400, 10, 11
local now = tonumber(ARGV[4])
local tight = {tonumber(ARGV[6]), tonumber(ARGV[8])}
local whole = {tonumber(ARGV[7]), tonumber(ARGV[9])}
local room, accounts, lacking, refused = {}, {}, 0, nil

for i = 1, (#KEYS - 4) / 2 do
  local at = FIRST + (i - 1) * WIDTH
  local key, unit, kind, start, since = KEYS[3 + 2 * i], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 6], ARGV[at + 7]
  local spent, held, fresh = pot(key, start, since)
  local limit, targets = tonumber(ARGV[at + 5]), tonumber(kind)
  local left = limit - spent - held
  local size, needed = tonumber(ARGV[at + 10]), tonumber(ARGV[at + 11])
  local short = needed > 0 and left < needed
  if ARGV[at + 4] == '1' and shut(key, now) then return {0, i, spent, held} end
  if kind == 'all' then
    if short then return {0, i, spent, held} end
    if size == 0 then room[unit] = math.min(room[unit] or left, left) end
  end
  if targets and short then
    lacking = bit.bor(lacking, targets)
    -- One that others' holds keep full comes first: it may have room soon.
    if not refused or spent + needed <= limit then refused = {0, i, spent, held} end
  end
  accounts[i] = {key, KEYS[4 + 2 * i], unit, kind, start, left, fresh, short, at, size}
end

if refused and lacking > 0 and lacking == tonumber(ARGV[10]) then return refused end

local function granted(unit)
  local left, all_of_it = room[unit], whole[unit]
  if not left or left >= AMPLE * all_of_it then return all_of_it end
  if left >= tight[unit] then return tight[unit] end
  return math.max(left, 0)
end

local function keep(account)
  local key, values, at = account[1], account[2], account[9]
  local ms, value = ARGV[at + 8], ARGV[at + 9]
  if account[7] and redis.call('HLEN', key) > MANY then prune(key, tonumber(ARGV[at + 7])) end
  if ms ~= '' then
    if account[7] then redis.call('ZREMRANGEBYSCORE', values, '-inf', now - tonumber(ms)) end
    if not redis.call('HGET', key, 'p') then redis.call('PEXPIRE', key, ms) end
  end
  if value ~= '' then redis.call('ZADD', values, now, value) end
end

local grant = {granted(1), granted(2)}
local reply = {1, grant[1], grant[2]}
local record = {'o', ARGV[3], 'u', grant[1], 't', grant[2]}
for _, account in ipairs(accounts) do
  local key, unit, kind, start = account[1], account[3], account[4], account[5]
  local amount, size = grant[unit], account[10]
  if size > 0 then amount = size end
  if tonumber(kind) then amount = account[8] and -1 or math.min(amount, math.max(account[6], 0)) end
  if amount >= 0 then
    redis.call('HINCRBY', key, 'h:' .. start, amount)
    record[#record + 1] = start .. '|' .. ARGV[account[9] + 1]
    record[#record + 1] = amount
    keep(account)
  end
  reply[#reply + 1] = size > 0 and account[6] - size or amount
end

for unit = 1, 2 do reply[#reply + 1] = math.max(0, (room[unit] or 0) - grant[unit]) end

redis.call('HSET', KEYS[2], unpack(record))
redis.call('SADD', KEYS[3], ARGV[2])
local time = redis.call('TIME')
redis.call('ZADD', KEYS[4], 'NX', tonumber(time[1]) * 1000 + ARGV[5], ARGV[3])
return reply
