-- Limits in Redis: the call, the time, the record of a rule, and the operations.
--
-- Amounts of use are whole numbers of fixed-point units below 2^53, exact in doubles. Never convert
-- an amount to text by `..` or `tostring`: both round to 14 digits; numbers in a redis.call keep 17.
--
-- The call has `counters`, one for each rule: {key, kind, amount, is_shadow, cost, b1,
-- b2, b3, b4, column, holders, tick, scale}. b1 to b4 are the boundaries of a calendar: the starts of the
-- last, this and the next window by the caller's clock, and the end of the next. The server's clock
-- decides which window holds. `column` is the index of the rule's cost among a request's costs.
-- `holders` is the key of the set of leases that may return some of a quota, or ''. `tick` is in ms,
-- and one of the metric has `scale` units.

local SCALE = 60000
local BUCKET, CALENDAR, TOTAL, CONCURRENCY = 0, 1, 2, 3
-- How long a record outlives its use: a caller may have another clock (in tests).
local MARGIN_MS = 60000
-- How long the record of a lease without renewal is kept. Until then, the lease can be settled.
local REMEMBERED_MS = 86400 * 1000
local LONGEST_WINDOW_MS = 32 * 86400 * 1000

local call = cmsgpack.unpack(ARGV[1])

local now = call.now_ms
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function kind_of(counter) return counter[2] end
local function scale_of(counter) return counter[13] or SCALE end
local function capacity_of(counter) return counter[3] * scale_of(counter) end
local function is_shadow(counter) return counter[4] end
local function cost_of(counter) return counter[5] end
local function column_of(counter) return counter[10] end
local function holders_of(counter) return counter[11] or '' end
-- A lease of an older release has counters without a tick and a scale.
local function tick_of(counter) return counter[12] or 1 end

local function current_window(counter)
    local start = counter[6]
    for i = 7, 9 do
        if counter[i] <= now then start = counter[i] end
    end
    return start
end

-- Return the present use of a bucket, after the use at `since`; see `windows.used_after`.
local function used_after(counter, used, since)
    local tick = tick_of(counter)
    local ticks = math.floor(now / tick) - math.floor(since / tick)
    if ticks > 0 then return math.max(0, used - counter[3] * ticks) end
    return used
end

-- Put a lease into the set of leases with a slot, or of holders, until its renewals end.
local function enter(key, id, expires)
    redis.call('ZADD', key, expires, id)
    redis.call('PEXPIRE', key, call.ttl_ms + MARGIN_MS)
end

-- A lease with several slots has a member for each: id, id and 2, id and 3, ...
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

-- Return the present use of a rule, and the window of this use (0 for a rule without windows).
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

-- A bucket's record ends when the bucket is full, a quota's record with the next window. A total
-- has no end: without a record, it would be available once more.
local function write(counter, used, window)
    local key, kind, amount, tick = counter[1], counter[2], counter[3], tick_of(counter)
    if used <= 0 then
        redis.call('DEL', key)
    elseif kind == BUCKET then
        local at = tonumber(redis.call('HGET', key, 'at') or '0')
        at = math.max(now, math.min(at, now + tick * scale_of(counter)))  -- see `memory`
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

-- Return how far a bucket has drained, as in `windows.Lows`: a list of number and level by turns,
-- the number of the last addition, and whether the bucket has drained since then. Numbers rise also
-- after the record has ended: then the bucket was full, and the next record begins so.
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

-- Add `cost` to the use of a rule. Returns the number of this addition to a bucket, else 0.
local function add(counter, used, cost, window)
    if kind_of(counter) == BUCKET then return add_to_bucket(counter, used, cost) end
    write(counter, used + cost, window)
    return 0
end

-- Return how much of an unused part of an addition is still there, and the lows without this part.
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

local function return_to_bucket(counter, part, unused)
    local used = read(counter)
    if unused < 0 then
        add_to_bucket(counter, used, -unused)
        return
    end
    local lows, number, has_drained = lows_of(counter[1], used)
    local given
    given, lows = taken_from_bucket(lows, part[5] or 0, unused, used)
    write(counter, used - given, 0)
    if used > given then keep_lows(counter[1], lows, number, has_drained) end
end

-- A lease has one part for each of its rules: {window, reserved in the window, reserved in all, has
-- left, number}. A lease has left a shadow rule that would have refused; the rule does not count the
-- lease. Of a bucket, `number` is that of the first addition; later ones count as parts of it. An
-- expired lease has no parts.
local function parts_of(lease_key)
    local stored = redis.call('HMGET', lease_key, 'expires', 'parts')
    if not stored[1] or tonumber(stored[1]) <= now then return nil end
    return cmsgpack.unpack(stored[2])
end

local function keep(lease_key, parts)
    redis.call('HSET', lease_key, 'parts', cmsgpack.pack(parts))
end

-- Replace a lease's reservation of a rule by the actual cost.
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

local operations = {}

-- Reserve the costs of a request, of all its rules or of none.
-- Returns {status, now, the use of each rule, the indexes of rules that refuse, and among these the
-- indexes of rules of which a lease holds some}. The use includes a granted reservation.
function operations.acquire()
    local EXISTS, DENIED, GRANTED = -1, 0, 1
    if parts_of(call.lease) then return cmsgpack.pack({EXISTS}) end

    local used, windows, refusing = {}, {}, {}
    local is_denied = false
    for i, counter in ipairs(call.counters) do
        used[i], windows[i] = read(counter)
        if cost_of(counter) > 0 and used[i] + cost_of(counter) > capacity_of(counter) then
            refusing[i] = true
            is_denied = is_denied or not is_shadow(counter)
        end
    end

    local indexes, held = {}, {}
    for i in pairs(refusing) do
        indexes[#indexes + 1] = i - 1
        local holders = holders_of(call.counters[i])
        if is_denied and holders ~= '' and num_in(holders) > 0 then held[#held + 1] = i - 1 end
    end
    table.sort(indexes)
    if is_denied then return cmsgpack.pack({DENIED, now, used, indexes, held}) end

    local expires = now + call.ttl_ms
    local parts = {}
    for i, counter in ipairs(call.counters) do
        local cost, number = refusing[i] and 0 or cost_of(counter), 0
        if cost > 0 then
            if kind_of(counter) == CONCURRENCY then
                enter_slots(counter[1], call.id, expires, math.floor(cost / SCALE))
            else
                number = add(counter, used[i], cost, windows[i])
            end
        end
        local holders = holders_of(counter)
        if holders ~= '' and not refusing[i] then enter(holders, call.id, expires) end
        used[i] = used[i] + cost
        parts[i] = {windows[i], cost, cost, refusing[i] or false, number}
    end
    redis.call('HSET', call.lease, 'expires', expires, 'tabs', cmsgpack.pack(call.counters))
    redis.call('PEXPIRE', call.lease, call.ttl_ms + REMEMBERED_MS)
    keep(call.lease, parts)
    return cmsgpack.pack({GRANTED, now, used, indexes, held})
end

-- Reserve as many more tokens of an answer as fit, `call.asked` at most. A counter's cost is the cost
-- of a token. Returns {granted, now, the former use of each rule, how many tokens fit into each}, the
-- last false where the rule does not matter. `granted` is -1 for a lost lease.
function operations.extend()
    local parts = parts_of(call.lease)
    if not parts then return cmsgpack.pack({-1}) end

    local granted = call.asked
    local used, windows, fitting = {}, {}, {}
    for i, counter in ipairs(call.counters) do
        local cost = cost_of(counter)
        used[i], fitting[i] = 0, false
        if cost > 0 and not parts[i][4] then
            used[i], windows[i] = read(counter)
            fitting[i] = math.floor((capacity_of(counter) - used[i]) / cost)
            if not is_shadow(counter) then granted = math.max(0, math.min(granted, fitting[i])) end
        end
    end

    for i, counter in ipairs(call.counters) do
        local cost = cost_of(counter) * granted
        if fitting[i] and cost > 0 then
            local part = parts[i]
            if is_shadow(counter) and fitting[i] < granted then
                part[4] = true
                cost = math.max(0, capacity_of(counter) - used[i])
            end
            if windows[i] ~= part[1] then part[1], part[2] = windows[i], 0 end
            part[2], part[3] = part[2] + cost, part[3] + cost
            if cost > 0 then add(counter, used[i], cost, windows[i]) end
        end
    end
    if granted > 0 then keep(call.lease, parts) end
    return cmsgpack.pack({granted, now, used, fitting})
end

-- Replace a lease's reservations by the actual costs, and delete the lease. A counter's cost is the
-- actual cost. A window that is over stays unchanged. An expired lease is settled, too: its process
-- may live without having been able to renew the lease.
function operations.settle()
    local stored = redis.call('HGET', call.lease, 'parts')
    if not stored then return 0 end

    local parts = cmsgpack.unpack(stored)
    for i, counter in ipairs(call.counters) do
        settle(counter, call.id, parts[i], cost_of(counter))
    end
    redis.call('DEL', call.lease)
    return 1
end

-- Settle leases of dead processes: {lease key, id, actual costs by column} each. The record of the
-- lease has its rules. A settled lease has no record.
function operations.reclaim()
    for _, dead in ipairs(call.leases) do
        local lease_key, id, costs = dead[1], dead[2], dead[3]
        local stored = redis.call('HMGET', lease_key, 'parts', 'tabs')
        if stored[1] and stored[2] then
            local parts, counters = cmsgpack.unpack(stored[1]), cmsgpack.unpack(stored[2])
            for i, counter in ipairs(counters) do
                settle(counter, id, parts[i], costs[column_of(counter) + 1])
            end
            redis.call('DEL', lease_key)
        end
    end
    return 1
end

-- Keep leases alive: {id, lease key, keys of sets that may contain the lease, number of slots} each.
function operations.renew()
    local expires = now + call.ttl_ms
    for _, lease in ipairs(call.leases) do
        local id, lease_key, keys = lease[1], lease[2], lease[3]
        if parts_of(lease_key) then
            redis.call('HSET', lease_key, 'expires', expires)
            redis.call('PEXPIRE', lease_key, call.ttl_ms + REMEMBERED_MS)
            for _, key in ipairs(keys) do
                -- XX: a shadow rule may not have let the lease in.
                each_slot(id, lease[4] or 1, function(member)
                    redis.call('ZADD', key, 'XX', expires, member)
                end)
                redis.call('PEXPIRE', key, call.ttl_ms + MARGIN_MS)
            end
        end
    end
    return 1
end

-- Return the use of each rule: {now, used}.
function operations.levels()
    local used = {}
    for i, counter in ipairs(call.counters) do used[i] = read(counter) end
    return cmsgpack.pack({now, used})
end

-- Raise the use to at least a counter's cost: of a quota, in the same window only; of a bucket, less
-- the refill since.
function operations.restore()
    for i, counter in ipairs(call.counters) do
        local used, window = read(counter)
        local since, cost = call.since_ms[i], cost_of(counter)
        if kind_of(counter) == BUCKET then
            cost = used_after(counter, cost, since)
            -- A baseline is rounded up, and the count of a bucket in use is exact.
            if used > 0 and cost - used < scale_of(counter) then cost = 0 end
        elseif kind_of(counter) == CONCURRENCY or (kind_of(counter) == CALENDAR and window ~= since) then
            cost = 0
        end
        if used < cost then add(counter, used, cost - used, window) end
    end
    return 1
end

return operations[call.operation]()
