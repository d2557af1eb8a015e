-- Stands before every script. An account is a hash: s:<window start> is what was spent there, h:<window start> what is
-- held. A budget that was split off has up (<parent's window start>|<parent>), size, ph and ps (what it holds and has
-- spent in its parent) and e (its end, or empty), once closed also x; p counts the open budgets split off an account.
-- Amounts are integers below 2^53, which Lua's numbers hold exactly.

local EPOCH = redis.error_reply('EPOCH the counters are of another time')

local function strange()
  return redis.call('GET', KEYS[1]) ~= ARGV[1]
end

-- A hash as a table; of no key: an empty one.
local function all(key)
  local fields, found = redis.call('HGETALL', key), {}
  for i = 1, #fields, 2 do found[fields[i]] = fields[i + 1] end
  return found
end

local function add(key, field, amount)
  if amount ~= 0 then redis.call('HINCRBY', key, field, amount) end
end

-- Spent, held, and whether this window has no booking yet. A window that starts where it counts from sees no other;
-- any other one is rolling.
local function pot(key, start, since)
  if start == since then
    local found = redis.call('HMGET', key, 's:' .. start, 'h:' .. start)
    return tonumber(found[1] or 0), tonumber(found[2] or 0), not (found[1] or found[2])
  end
  local spent, held, from, fields = 0, 0, tonumber(since), all(key)
  for field, value in pairs(fields) do
    local kind, at = string.match(field, '^([sh]):(%d+)$')
    if kind == 'h' then
      held = held + tonumber(value)
    elseif kind == 's' and tonumber(at) >= from then
      spent = spent + tonumber(value)
    end
  end
  return spent, held, not (fields['s:' .. start] or fields['h:' .. start])
end

-- Takes out the windows that nothing counts any more.
local function prune(key, before)
  local fields = all(key)
  for field, value in pairs(fields) do
    local kind, at = string.match(field, '^([sh]):(%d+)$')
    if kind and tonumber(at) < before and tonumber(fields['h:' .. at] or 0) == 0 then
      redis.call('HDEL', key, field)
    end
  end
end

-- A budget that was split off takes no new request once it is closed or expired.
local function shut(key, now)
  local found = redis.call('HMGET', key, 'up', 'x', 'e')
  return not found[1] or found[2] or (found[3] ~= '' and tonumber(found[3]) <= now)
end

-- Where a child is booked in its parent: its size while it is open, or more if it overran that; once it is closed what
-- it spent and still holds; once it holds nothing, what it spent.
local function inside(child)
  local spent, held = tonumber(child['s:0'] or 0), tonumber(child['h:0'] or 0)
  if not child.x then return math.max(tonumber(child.size), spent + held), 0 end
  if held > 0 then return spent + held, 0 end
  return 0, spent
end

-- Brings the parents of a child up to date; `keys` has the key of each account by its id. Appends each booking of a
-- child in its parent that has changed (or, if `told`, each) to `moved`: child, parent, window start, held, spent, done.
local function follow(id, keys, moved, told)
  local child = all(keys[id])
  if not child.up then return end
  local held, spent = inside(child)
  local more, charged = held - tonumber(child.ph), spent - tonumber(child.ps)
  if more == 0 and charged == 0 and not told then return end
  local start, parent = string.match(child.up, '^(%d+)|(.*)$')
  add(keys[parent], 'h:' .. start, more)
  add(keys[parent], 's:' .. start, charged)
  redis.call('HSET', keys[id], 'ph', held, 'ps', spent)
  local done = (child.x and held == 0) and 1 or 0
  for _, value in ipairs({id, parent, start, held, spent, done}) do moved[#moved + 1] = value end
  follow(parent, keys, moved, told)
end
