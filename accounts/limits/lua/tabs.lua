-- What all scripts begin with: the call, the time, and how a rule's record is kept.
--
-- Amounts are whole numbers of grains below 2^53, so that doubles hold them exactly. They
-- must never be made into text by `..` or `tostring`, which round to 14 digits; numbers
-- given to redis.call keep 17.
--
-- A tab, as the call describes it: {key, kind, amount, is_shadow, cost, b1, b2, b3, b4, column,
-- holders}. The four are those of a calendar: the starts of the last, this and the next window
-- by the caller's clock, and the end of the next. Which of them it is now, the server's clock
-- says. The column says which of a request's costs is that of the rule. The holders are the key
-- of a set of leases that may give back some of a quota, '' where none does.

local GRAINS = 60000
local BUCKET, CALENDAR, TOTAL, PLACES = 0, 1, 2, 3
-- Records outlive their use by so much, lest a caller with another clock (tests) miss them.
local MARGIN_MS = 60000
-- What a process has reserved that died, or could not be heard, is known for so long, so that it
-- can still be settled.
local REMEMBERED_MS = 86400 * 1000
-- As `buckets` explains.
local MOST_AHEAD_MS = 60000
local LONGEST_WINDOW_MS = 32 * 86400 * 1000

local call = cmsgpack.unpack(ARGV[1])

local now = call.now_ms
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function kind_of(tab) return tab[2] end
local function capacity_of(tab) return tab[3] * GRAINS end
local function is_shadow(tab) return tab[4] end
local function cost_of(tab) return tab[5] end
local function column_of(tab) return tab[10] end
local function holders_of(tab) return tab[11] or '' end

local function window_at_now(tab)
    local start = tab[6]
    for i = 7, 9 do
        if tab[i] <= now then start = tab[i] end
    end
    return start
end

-- What is still used of a bucket. A clock set back refills nothing.
local function used_after(used, amount, since)
    if now > since then return math.max(0, used - amount * (now - since)) end
    return used
end

-- Put a lease into a set, for as long as it is renewed: of who has a place, or of holders.
local function enter(key, id, expires)
    redis.call('ZADD', key, expires, id)
    redis.call('PEXPIRE', key, call.ttl_ms + MARGIN_MS)
end

local function num_in(key)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    return redis.call('ZCARD', key)
end

-- What is used of a rule now, and the window that this is said of (0 when it has none).
local function read(tab)
    local key, kind, amount = tab[1], tab[2], tab[3]
    if kind == PLACES then return num_in(key) * GRAINS, 0 end
    local stored = redis.call('HMGET', key, 'used', 'at')
    local used, at = tonumber(stored[1] or '0'), tonumber(stored[2] or '0')
    if kind == BUCKET then
        return used_after(used, amount, at), 0
    elseif kind == CALENDAR then
        local window = window_at_now(tab)
        -- A clock that was set back does not bring an old window back.
        if at > window then return used, at end
        if at < window then return 0, window end
        return used, window
    end
    return used, 0
end

-- Buckets are forgotten when they are full again, quotas after their window. A budget has no
-- end, because forgetting it would give it away again.
local function write(tab, used, window)
    local key, kind, amount = tab[1], tab[2], tab[3]
    if used <= 0 then
        redis.call('DEL', key)
    elseif kind == BUCKET then
        local at = tonumber(redis.call('HGET', key, 'at') or '0')
        at = math.max(now, math.min(at, now + MOST_AHEAD_MS))
        redis.call('HSET', key, 'used', used, 'at', at)
        local full_ms = amount > 0 and math.ceil(used / amount) or LONGEST_WINDOW_MS
        redis.call('PEXPIRE', key, math.min(full_ms, LONGEST_WINDOW_MS) + at - now + MARGIN_MS)
    elseif kind == CALENDAR then
        redis.call('HSET', key, 'used', used, 'at', window)
        redis.call('PEXPIRE', key, math.max(0, window + LONGEST_WINDOW_MS - now) + MARGIN_MS)
    else
        redis.call('HSET', key, 'used', used)
    end
end

-- What a bucket remembers of how far it has drained, as `buckets.Lows` explains: {number, level}
-- in a row, and the number of the last addition. Numbers rise also when the record was forgotten
-- meanwhile: then it was empty, and that is the first level of the next one. Answers also whether
-- it has drained since that addition, to what is used of it now.
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

local function add_to_bucket(tab, used, cost)
    local lows, last, has_drained = lows_of(tab[1], used)
    local number = math.max(last + 1, now * 1000)
    if has_drained then note(lows, number, used) end
    write(tab, used + cost, 0)
    keep_lows(tab[1], lows, number, false)
    return number
end

-- Use so much more of a rule. Answers the number of this addition to a bucket.
local function add(tab, used, cost, window)
    if kind_of(tab) == BUCKET then return add_to_bucket(tab, used, cost) end
    write(tab, used + cost, window)
    return 0
end

-- How much is there of what an addition has reserved and nobody used. It counts as given back.
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

-- What was reserved last is what was not used.
local function give_back_to_bucket(tab, part, unused)
    local used = read(tab)
    if unused < 0 then
        add_to_bucket(tab, used, -unused)
        return
    end
    local lows, number, has_drained = lows_of(tab[1], used)
    local later, given = part[6] or {}, 0
    for i = #later - 1, 1, -2 do
        local piece = math.min(unused, later[i + 1])
        given, lows = taken_from_bucket(lows, later[i], piece, used)
        used, unused = used - given, unused - piece
    end
    given, lows = taken_from_bucket(lows, part[5] or 0, unused, used)
    write(tab, used - given, 0)
    if used > given then keep_lows(tab[1], lows, number, has_drained) end
end

-- A lease holds one part for each of its rules: {window, reserved in it, reserved in all, has
-- left, number, later}. A shadow rule that would have refused is left: it does not count the
-- lease any more. Of a bucket it knows the number of the addition that has reserved the first
-- of it, and number and cost of the last two after that one, in a row. One that has expired has
-- no parts.
local function parts_of(lease_key)
    local stored = redis.call('HMGET', lease_key, 'expires', 'parts')
    if not stored[1] or tonumber(stored[1]) <= now then return nil end
    return cmsgpack.unpack(stored[2])
end

local function keep(lease_key, parts)
    redis.call('HSET', lease_key, 'parts', cmsgpack.pack(parts))
end

-- Replace what a lease has reserved of a rule by what was spent of it.
local function give_back(tab, id, part, spent)
    if kind_of(tab) == PLACES then
        redis.call('ZREM', tab[1], id)
        return
    end
    if holders_of(tab) ~= '' then redis.call('ZREM', holders_of(tab), id) end
    local window, reserved_there, reserved = part[1], part[2], part[3]
    local unused = reserved - spent
    if is_shadow(tab) then unused = math.max(0, unused) end
    unused = math.min(unused, reserved_there)
    if unused == 0 then return end
    if kind_of(tab) == BUCKET then
        give_back_to_bucket(tab, part, unused)
        return
    end
    if kind_of(tab) == CALENDAR then
        local stored = redis.call('HMGET', tab[1], 'used', 'at')
        if tonumber(stored[2] or '0') == window then
            write(tab, math.max(0, tonumber(stored[1]) - unused), window)
        end
        return
    end
    write(tab, math.max(0, read(tab) - unused), window)
end
