-- All scripts begin with this: the call, the time, and how a rule's record is kept.
--
-- Amounts of use are whole numbers of fixed-point units below 2^53, which doubles hold exactly.
-- Never convert them to text by `..` or `tostring`, which round to 14 digits; numbers in a
-- redis.call keep 17.
--
-- The call has `counters`, one for each rule: {key, kind, amount, is_shadow, cost, b1,
-- b2, b3, b4, column, holders, tick}. b1 to b4 are the boundaries of a calendar: the starts of the
-- last, this and the next window by the caller's clock, and the end of the next. The server's clock
-- decides which of them it is. `column` is the index of the rule's cost among a request's costs.
-- `holders` is the key of the set of leases that may return some of a quota, or ''. `tick` is in ms.

local SCALE = 60000
local BUCKET, CALENDAR, TOTAL, CONCURRENCY = 0, 1, 2, 3
-- How long a record outlives its use: a caller may have another clock (in tests).
local MARGIN_MS = 60000
-- How long the record of a lease is kept that its process does not renew. Until then it can still
-- be settled.
local REMEMBERED_MS = 86400 * 1000
local LONGEST_WINDOW_MS = 32 * 86400 * 1000

local call = cmsgpack.unpack(ARGV[1])

local now = call.now_ms
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function kind_of(counter) return counter[2] end
local function capacity_of(counter) return counter[3] * SCALE end
local function is_shadow(counter) return counter[4] end
local function cost_of(counter) return counter[5] end
local function column_of(counter) return counter[10] end
local function holders_of(counter) return counter[11] or '' end
-- A lease of an older release has counters without a tick.
local function tick_of(counter) return counter[12] or 1 end

local function current_window(counter)
    local start = counter[6]
    for i = 7, 9 do
        if counter[i] <= now then start = counter[i] end
    end
    return start
end

-- What is still used of a bucket now, of what was used at `since`; see `windows.used_after`.
local function used_after(counter, used, since)
    local tick = tick_of(counter)
    local ticks = math.floor(now / tick) - math.floor(since / tick)
    if ticks > 0 then return math.max(0, used - counter[3] * ticks) end
    return used
end

-- Put a lease into a set, for as long as it is renewed: of those that have a slot, or of holders.
local function enter(key, id, expires)
    redis.call('ZADD', key, expires, id)
    redis.call('PEXPIRE', key, call.ttl_ms + MARGIN_MS)
end

-- A lease with several slots has a member for each: its id, its id and 2, its id and 3, ...
local function each_slot(id, num, call_with)
    call_with(id)
    for slot = 2, num do call_with(id .. ' ' .. slot) end
end

local function enter_slots(key, id, expires, num)
    each_slot(id, num, function(member) redis.call('ZADD', key, expires, member) end)
    redis.call('PEXPIRE', key, call.ttl_ms + MARGIN_MS)
end

local function num_in(key)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    return redis.call('ZCARD', key)
end

-- Return what is used of a rule now, and the window of that (0 when the rule has none).
local function read(counter)
    local key, kind = counter[1], counter[2]
    if kind == CONCURRENCY then return num_in(key) * SCALE, 0 end
    local stored = redis.call('HMGET', key, 'used', 'at')
    local used, at = tonumber(stored[1] or '0'), tonumber(stored[2] or '0')
    if kind == BUCKET then
        return used_after(counter, used, at), 0
    elseif kind == CALENDAR then
        local window = current_window(counter)
        -- A clock that was set back does not bring an old window back.
        if at > window then return used, at end
        if at < window then return 0, window end
        return used, window
    end
    return used, 0
end

-- A bucket's record ends when the bucket is full, a quota's with the window after its own. A total
-- has no end: without its record it would be available once more.
local function write(counter, used, window)
    local key, kind, amount, tick = counter[1], counter[2], counter[3], tick_of(counter)
    if used <= 0 then
        redis.call('DEL', key)
    elseif kind == BUCKET then
        local at = tonumber(redis.call('HGET', key, 'at') or '0')
        at = math.max(now, math.min(at, now + tick * SCALE))  -- see `windows.latest_ms`
        redis.call('HSET', key, 'used', used, 'at', at)
        local full_ms = amount > 0 and math.ceil(used / amount) * tick or LONGEST_WINDOW_MS
        redis.call('PEXPIRE', key, math.min(full_ms, LONGEST_WINDOW_MS) + at - now + MARGIN_MS)
    elseif kind == CALENDAR then
        redis.call('HSET', key, 'used', used, 'at', window)
        local until_ms = math.min(window + LONGEST_WINDOW_MS, counter[9])
        redis.call('PEXPIRE', key, math.max(0, until_ms - now) + MARGIN_MS)
    else
        redis.call('HSET', key, 'used', used)
    end
end

-- Return how far a bucket has drained, as `windows.Lows` has it: a list of number and level by
-- turns, the number of the last addition, and whether the bucket has drained since then. Numbers
-- rise also after the record has ended: then the bucket was full, and the next record begins so.
local function lows_of(key, used)
    local stored = redis.call('HMGET', key, 'lows', 'number', 'used', 'drained')
    if not stored[1] then return {}, 0, true end
    local has_drained = stored[4] == '1' or used < tonumber(stored[3])
    return cmsgpack.unpack(stored[1]), tonumber(stored[2]), has_drained
end

local function keep_lows(key, lows, number, has_drained)
    local drained = has_drained and 1 or 0
    redis.call('HSET', key, 'lows', cmsgpack.pack(lows), 'number', number, 'drained', drained)
end

local function note(lows, number, level)
    local function pop() lows[#lows], lows[#lows - 1] = nil, nil end
    while #lows > 0 and lows[#lows] >= level do pop() end
    if #lows > 0 and level * 8 <= lows[#lows] * 9 then
        level = lows[#lows]
        pop()
    end
    lows[#lows + 1] = number
    lows[#lows + 1] = level
end

local function add_to_bucket(counter, used, cost)
    local lows, last, has_drained = lows_of(counter[1], used)
    local number = math.max(last + 1, now * 1000)
    if has_drained then note(lows, number, used) end
    write(counter, used + cost, 0)
    keep_lows(counter[1], lows, number, false)
    return number
end

-- Use so much more of a rule. Returns the number of this addition to a bucket, else 0.
local function add(counter, used, cost, window)
    if kind_of(counter) == BUCKET then return add_to_bucket(counter, used, cost) end
    write(counter, used + cost, window)
    return 0
end

-- Return how much of an unused part of an addition is still there, and the lows without it.
local function taken_from_bucket(lows, number, unused, used)
    local first = #lows + 1
    while first > 1 and lows[first - 2] > number do first = first - 2 end
    local given = math.min(unused, used, lows[first + 1] or used)
    local kept = {}
    for i = 1, first - 1, 2 do
        if first > #lows or lows[i + 1] < lows[first + 1] - given then
            kept[#kept + 1], kept[#kept + 2] = lows[i], lows[i + 1]
        end
    end
    for i = first, #lows, 2 do
        kept[#kept + 1], kept[#kept + 2] = lows[i], lows[i + 1] - given
    end
    return given, kept
end

-- The last reservation is the one that was not used.
local function return_to_bucket(counter, part, unused)
    local used = read(counter)
    if unused < 0 then
        add_to_bucket(counter, used, -unused)
        return
    end
    local lows, number, has_drained = lows_of(counter[1], used)
    local later, given = part[6] or {}, 0
    for i = #later - 1, 1, -2 do
        local cost = math.min(unused, later[i + 1])
        given, lows = taken_from_bucket(lows, later[i], cost, used)
        used, unused = used - given, unused - cost
    end
    given, lows = taken_from_bucket(lows, part[5] or 0, unused, used)
    write(counter, used - given, 0)
    if used > given then keep_lows(counter[1], lows, number, has_drained) end
end

-- A lease has one part for each of its rules: {window, reserved in it, reserved in all, has left,
-- number, later}. It has left a shadow rule that would have refused it, which then does not count
-- it. Of a bucket it has the number of the addition by which it has reserved first, and a list of
-- number and cost by turns of the last two later additions. An expired lease has no parts.
local function parts_of(lease_key)
    local stored = redis.call('HMGET', lease_key, 'expires', 'parts')
    if not stored[1] or tonumber(stored[1]) <= now then return nil end
    return cmsgpack.unpack(stored[2])
end

local function keep(lease_key, parts)
    redis.call('HSET', lease_key, 'parts', cmsgpack.pack(parts))
end

-- Replace what a lease has reserved of a rule by its actual cost.
local function settle(counter, id, part, cost)
    if kind_of(counter) == CONCURRENCY then
        local num_slots = math.floor(part[3] / SCALE)
        each_slot(id, num_slots, function(member) redis.call('ZREM', counter[1], member) end)
        return
    end
    if holders_of(counter) ~= '' then redis.call('ZREM', holders_of(counter), id) end
    local window, reserved_in_window, reserved = part[1], part[2], part[3]
    local unused = reserved - cost
    if is_shadow(counter) then unused = math.max(0, unused) end
    unused = math.min(unused, reserved_in_window)
    if unused == 0 then return end
    if kind_of(counter) == BUCKET then
        return_to_bucket(counter, part, unused)
        return
    end
    if kind_of(counter) == CALENDAR then
        local stored = redis.call('HMGET', counter[1], 'used', 'at')
        if tonumber(stored[2] or '0') == window then
            write(counter, math.max(0, tonumber(stored[1]) - unused), window)
        end
        return
    end
    write(counter, math.max(0, read(counter) - unused), window)
end
