"""The Lua scripts that the server runs, each as one step that no other command interrupts.

Every script has the keys stream, state and lease, and begins with the fence: it changes nothing unless the caller still holds the lease.
The state is a hash with these fields:

- `holder`: the token of the last reader that took the lease; `mark`: the birthmark of the lane; `begin`: the id at which it began.
- `read`: the id up to which entries are delivered or missing; `counted`: the number of entries ever added up to it.
- `delivered`: the last delivered id; `committed`: the id up to which all entries are answered.
- `gap_from`, `gap_to`: the ids around missing entries that are not yet passed; `lost`: the number of all missing entries.
- `log`, `stream`, `receipts`: the mark of the event log.

`counted` proves that nothing is missing. The counter `entries-read` of the server does not: it counts deliveries, and trimmed entries only
sometimes.
"""

from __future__ import annotations

from typing import Final

_FENCE: Final = """
local stream, state, lease = KEYS[1], KEYS[2], KEYS[3]
local token, lease_ms, mark, group, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local holder = redis.call('HGET', state, 'holder')
if not holder then return {'deleted'} end
if holder ~= token then return {'fenced'} end
if mark ~= '' and redis.call('HGET', state, 'mark') ~= mark then return {'deleted'} end
redis.call('SET', lease, token, 'PX', lease_ms)
"""

_IDS: Final = """
local function is_after(a, b)
  local a_ms, a_seq = string.match(a, '(%d+)-(%d+)')
  local b_ms, b_seq = string.match(b, '(%d+)-(%d+)')
  if a_ms ~= b_ms then return tonumber(a_ms) > tonumber(b_ms) end
  return tonumber(a_seq) > tonumber(b_seq)
end
local function info_of(key)
  local reply, info = redis.pcall('XINFO', 'STREAM', key), {}
  if reply.err then return nil end
  for i = 1, #reply, 2 do
    local name = reply[i]
    if name == 'entries-added' or name == 'length' or name == 'last-generated-id' or name == 'recorded-first-entry-id' then
      info[name] = reply[i + 1]
    end
  end
  return info
end
local function count_after(id, last)
  local count, after = 0, id
  repeat
    local page = redis.call('XRANGE', stream, '(' .. after, last, 'COUNT', 500)
    count = count + #page
    if #page > 0 then after = page[#page][1] end
  until #page < 500
  return count
end
local function counted_at(info, id)
  local counted = info['entries-added']
  if info['length'] == 0 or not is_after(info['last-generated-id'], id) then return counted end
  if is_after(info['recorded-first-entry-id'], id) then return counted - info['length'] end
  return counted - count_after(id, '+')
end
"""

ACQUIRE: Final = """
local state, lease = KEYS[2], KEYS[3]
local token, lease_ms = ARGV[1], ARGV[2]
local other = redis.call('GET', lease)
if other and other ~= token then return {'held', redis.call('PTTL', lease)} end
redis.call('SET', lease, token, 'PX', lease_ms)
redis.call('HSET', state, 'holder', token)
return {'ok'}
"""
"""Take the lease if it is free. From then on, scripts of the reader before are refused."""

RELEASE: Final = """
if redis.call('GET', KEYS[3]) == ARGV[1] then redis.call('DEL', KEYS[3]) end
return {'ok'}
"""
"""Give the lease back. Scripts of this reader still work until another one takes it."""

RENEW: Final = (
    _FENCE
    + """
local reply, added = redis.pcall('XINFO', 'STREAM', stream), nil
if not reply.err then
  for i = 1, #reply, 2 do
    if reply[i] == 'entries-added' then added = reply[i + 1] end
  end
end
local counted = tonumber(redis.call('HGET', state, 'counted'))
if not added or not counted then return {'ok', -1} end
return {'ok', math.max(added - counted, 0)}
"""
)
"""Prolong the lease, and count the entries that are not read, or -1 if that is unknown."""

ESTABLISH: Final = (
    _FENCE
    + _IDS
    + """
local how, id, new_mark = ARGV[6], ARGV[7], ARGV[8]
if how == 'create' then
  redis.call('XGROUP', 'CREATE', stream, group, id, 'MKSTREAM')
elseif how == 'set' then
  redis.call('XGROUP', 'SETID', stream, group, id)
end
redis.call('XGROUP', 'CREATECONSUMER', stream, group, consumer)
local info = info_of(stream)
if id == '$' then id = info['last-generated-id'] end
local counted = counted_at(info, id)
if redis.call('HGET', state, 'mark') ~= new_mark then
  redis.call('HDEL', state, 'committed', 'gap_from', 'gap_to', 'lost')
  redis.call('HSET', state, 'mark', new_mark, 'begin', id)
end
redis.call('HSET', state, 'read', id, 'delivered', id, 'counted', counted)
return {'ok', id}
"""
)
"""Create the group or set its id, mark it with its consumer, and begin to count there."""

SEEK: Final = (
    _FENCE
    + _IDS
    + """
local id = ARGV[6]
local info = info_of(stream)
if not info then return {'deleted'} end
local function stored(name) return redis.call('HGET', state, name) end
local read, gap_to = stored('read'), stored('gap_to')
if read == id and stored('delivered') == id and stored('committed') == id then return {'ok'} end
local counted
if is_after(id, read) then counted = counted_at(info, id) else counted = tonumber(stored('counted')) - count_after(id, read) end
local reply = redis.pcall('XGROUP', 'SETID', stream, group, id, 'ENTRIESREAD', counted)
if reply.err then
  if string.sub(reply.err, 1, 7) == 'NOGROUP' then return {'deleted'} end
  return reply
end
repeat
  local waiting = redis.call('XPENDING', stream, group, '-', '+', 500)
  for i, one in ipairs(waiting) do redis.call('XACK', stream, group, one[1]) end
until #waiting < 500
redis.call('HSET', state, 'read', id, 'delivered', id, 'committed', id, 'counted', counted)
if gap_to and not is_after(gap_to, id) then redis.call('HDEL', state, 'gap_from', 'gap_to') end
return {'ok'}
"""
)
"""Have the group read after an id. Pending entries end: they are after the id and delivered again, or before it and not read any more.

It does nothing for a lane that is there already. So a repetition ends at once after the client did not wait for a long count. After an
earlier id, entries that are missing and not counted yet, and a gap that is not passed, are still to be found.
"""

FETCH: Final = (
    _FENCE
    + _IDS
    + """
local count = tonumber(ARGV[6])
local info = info_of(stream)
if not info then return {'deleted'} end
local from = redis.call('HGET', state, 'read')
local counted = tonumber(redis.call('HGET', state, 'counted'))
local reply = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>')
if reply and reply.err then
  if string.sub(reply.err, 1, 7) == 'NOGROUP' then return {'deleted'} end
  return reply
end
local entries = reply and reply[1] and reply[1][2] or {}
local missing, last = 0, info['last-generated-id']
if #entries == count then
  if is_after(info['recorded-first-entry-id'], from) then missing = info['entries-added'] - info['length'] - counted end
  redis.call('HSET', state, 'read', entries[#entries][1])
else
  missing = info['entries-added'] - counted - #entries
  redis.call('HSET', state, 'read', last)
end
local gap_from, gap_to = '', ''
if missing > 0 then
  gap_from, gap_to = from, last
  if #entries > 0 then
    local ms, seq = string.match(entries[1][1], '(%d+)-(%d+)')
    if seq == '0' then
      gap_to = string.format('%.0f-1048575', tonumber(ms) - 1)
    else
      gap_to = string.format('%s-%.0f', ms, tonumber(seq) - 1)
    end
  end
  redis.call('HSET', state, 'gap_from', gap_from, 'gap_to', gap_to)
  redis.call('HINCRBY', state, 'lost', missing)
end
redis.call('HSET', state, 'counted', counted + #entries + missing)
if #entries > 0 then redis.call('HSET', state, 'delivered', entries[#entries][1]) end
return {'ok', entries, last, missing, gap_from, gap_to, math.max(info['entries-added'] - counted - #entries - missing, 0)}
"""
)
"""Read new entries, and count missing and unread ones. `count` new entries mean that there may be more."""

PENDING: Final = (
    _FENCE
    + """
local after, count = ARGV[6], ARGV[7]
local waiting = redis.pcall('XPENDING', stream, group, '(' .. after, '+', count, consumer)
if waiting.err then
  if string.sub(waiting.err, 1, 7) == 'NOGROUP' then return {'deleted'} end
  return waiting
end
local deliveries = {}
for i, one in ipairs(waiting) do deliveries[i] = one[4] + 1 end
local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, after)
return {'ok', reply and reply[1] and reply[1][2] or {}, deliveries}
"""
)
"""Read entries again that were delivered and not acknowledged."""

COMMIT: Final = (
    _FENCE
    + """
local committed, log, log_stream, receipts, passes = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local first = 11
while first <= #ARGV do
  local last = math.min(first + 3999, #ARGV)
  redis.call('XACK', stream, group, unpack(ARGV, first, last))
  first = last + 1
end
if committed ~= '' then redis.call('HSET', state, 'committed', committed) end
if log ~= '' then redis.call('HSET', state, 'log', log, 'stream', log_stream, 'receipts', receipts) end
if passes ~= '' then redis.call('HDEL', state, 'gap_from', 'gap_to') end
return {'ok'}
"""
)
"""Acknowledge entries, and store the committed id with the mark of the event log."""

COUNT: Final = """
local page = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {#page, #page > 0 and page[#page][1] or ''}
"""
"""Count entries between two ids, up to a limit, and return the id of the last one. It changes nothing, so it has no fence."""

PEEK: Final = """
local stream, group, consumer, after, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local entries, deliveries, missing = {}, {}, 0
local function add(entry, delivery)
  entries[#entries + 1] = entry
  deliveries[#deliveries + 1] = delivery
end
if consumer ~= '' then
  local waiting = redis.pcall('XPENDING', stream, group, '-', '+', count, consumer)
  if waiting.err and string.sub(waiting.err, 1, 7) ~= 'NOGROUP' then return waiting end
  for _, one in ipairs(waiting) do
    local found = redis.call('XRANGE', stream, one[1], one[1])
    if #found > 0 then add(found[1], one[4] + 1) else missing = missing + 1 end
  end
end
if #entries < count then
  for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', count - #entries)) do add(entry, 1) end
end
return {entries, deliveries, missing}
"""
"""Return entries that are pending, then new ones. It changes nothing, so it has no fence."""
