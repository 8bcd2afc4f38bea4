import { beforeEach, describe, expect, test } from 'vitest'
import { findIdBounds } from '../src/events/id-bounds.ts'
import { countEvents, listEvents } from '../src/ops/event-queries.ts'
import { eventFilter, sendFilter } from '../src/ops/filters.ts'
import { explainNoHit, findAnything, searchBodies } from '../src/ops/search.ts'
import { countSends, listSends } from '../src/ops/send-queries.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertFollowUp, insertReport, insertSend } from './support/ops-rows.ts'

const { pool } = await testDatabase()
const NOW = new Date('2026-11-29T14:00:00Z')
const ago = (minutes: number) => new Date(NOW.getTime() - minutes * 60_000)
const sendsOf = (query: Record<string, string>) => listSends(pool, sendFilter(() => NOW).parse(query))
const eventsOf = (query: Record<string, string>) => listEvents(pool, eventFilter(() => NOW).parse(query))
const found = async (query: Record<string, string>) => (await sendsOf(query)).sends.map((send) => send.dedupe_key)
const insertRef = (ref: string, event: string) =>
  pool.query('insert into event_refs (ref, event_id) values ($1, $2)', [ref, event])

beforeEach(() => pool.query('truncate webhook_events, email_sends, webhook_bodies cascade'))

/** All pages, two rows each. */
async function pages<Row>(page: (cursor: string | undefined) => Promise<{ rows: Row[]; next: string | null }>): Promise<Row[]> {
  const all: Row[] = []
  let cursor: string | undefined
  for (;;) {
    const { rows, next } = await page(cursor)
    all.push(...rows)
    if (next === null) return all
    cursor = next
  }
}
const pagesOfSends = (query: Record<string, string>) =>
  pages(async (cursor) => {
    const { sends, next_cursor } = await sendsOf({ ...query, limit: '2', ...(cursor !== undefined && { cursor }) })
    return { rows: sends.map((send) => send.dedupe_key), next: next_cursor }
  })
const pagesOfEvents = (query: Record<string, string>) =>
  pages(async (cursor) => {
    const { events, next_cursor } = await eventsOf({ ...query, limit: '2', ...(cursor !== undefined && { cursor }) })
    return { rows: events.map((event) => event.event_id), next: next_cursor }
  })

describe('the search of the list of sends', () => {
  test('finds by what an event of the send refers to, and by a part of an address', async () => {
    await insertSend(pool, 'invoice:in_1:paid', { recipient: 'Ada.Lovelace@example.com' })
    await insertSend(pool, 'invoice:in_2:paid', { recipient: 'bob@example.com' })
    const asked = await insertEvent(pool, 'evt_1')
    await insertFollowUp(pool, asked, 'invoice:in_1:paid')
    await insertRef('inv-1042', asked)
    const reported = await insertEvent(pool, 'm_2:delivered', { source: 'inboxili' })
    await insertRef('track-77', reported)
    await insertReport(pool, reported, { attempt: await insertAttempt(pool, 'invoice:in_2:paid', { message_id: 'm_2' }) })

    expect(await found({ q: 'INV-1042' })).toEqual(['invoice:in_1:paid'])
    expect(await found({ q: 'Track-77' })).toEqual(['invoice:in_2:paid'])
    expect(await found({ q: 'm_2' })).toEqual(['invoice:in_2:paid'])
    expect(await found({ q: 'LOVELACE@' })).toEqual(['invoice:in_1:paid'])
    expect(await found({ q: 'ad' })).toEqual([])
  })

  test('takes what is named exactly for that alone', async () => {
    for (const key of ['order:1', 'order:10', 'x:order:1']) await insertSend(pool, key)

    expect(await found({ q: 'order:1' })).toEqual(['order:1'])
    expect((await found({ q: 'rder:1' })).sort()).toEqual(['order:1', 'order:10', 'x:order:1'])
  })

  test('looks for % and _ as they are, and for what has no letter or digit only as a whole', async () => {
    for (const key of ['rebate:100%:a_b', 'rebate:100x:acb', '%%%', 'a%%%b']) await insertSend(pool, key)

    expect(await found({ q: '100%' })).toEqual(['rebate:100%:a_b'])
    expect(await found({ q: ':a_b' })).toEqual(['rebate:100%:a_b'])
    expect(await found({ q: '%%%' })).toEqual(['%%%'])
    expect(await found({ q: '%' })).toEqual([])
    expect(await found({ q: '\\' })).toEqual([])
  })

  test('finds letters of every script', async () => {
    for (const key of ['заказ:77:оплачен', '注文:八十八:済', 'gruß:🎉:1']) await insertSend(pool, key)

    expect(await found({ q: 'заказ' })).toEqual(['заказ:77:оплачен'])
    expect(await found({ q: '八十八' })).toEqual(['注文:八十八:済'])
    expect(await found({ q: 'gru' })).toEqual(['gruß:🎉:1'])
  })

  test('finds what is old and rare behind ten thousand newer ones, and pages through what is in both', async () => {
    await pool.query(
      `insert into email_sends (dedupe_key, match_key, state, policy, recipient, message, message_sha256, requested_by, queued_at)
       select 'filler:' || n, 'a@example.com', 'rejected', 'claim', 'a@example.com', '{}', '', 'token:t', $1::timestamptz - n * interval '1 s'
       from generate_series(1, 12000) n`,
      [NOW],
    )
    for (const [key, minutes] of [
      ['needle:new', 1],
      ['needle:old1', 9_000],
      ['needle:old2', 9_001],
      ['needle:old3', 9_002],
    ] as const)
      await insertSend(pool, key, { queued_at: ago(minutes), recipient: `${key.slice(7)}@needles.example` })
    const expected = ['needle:new', 'needle:old1', 'needle:old2', 'needle:old3']

    expect(await pagesOfSends({ q: 'needle' })).toEqual(expected)
    expect(await pagesOfSends({ q: 'needles.ex' })).toEqual(expected)
    expect(await pagesOfSends({ q: 'needle', status: 'queued,bounced' })).toEqual(expected)
    expect(await countSends(pool, sendFilter(() => NOW).parse({ q: 'needle' }))).toBe(4)
    expect(await countSends(pool, sendFilter(() => NOW).parse({ q: 'filler' }))).toBe(10_001)
    expect(await countSends(pool, sendFilter(() => NOW).parse({}))).toBe(10_001)
  })

  test('finds the sends of calls whose outcome nobody knew, since when one asks, with every other filter', async () => {
    for (const [key, state, minutes, outcome] of [
      ['doubt:1', 'needs_review', 10, 'unknown'],
      ['doubt:2', 'sent', 20, 'unknown'],
      ['doubt:3', 'sent', 90, 'unknown'],
      ['doubt:4', 'sent', 10, 'accepted'],
    ] as const) {
      await insertSend(pool, key, { state, queued_at: ago(200 + minutes) })
      await insertAttempt(pool, key, { outcome, claimed_at: ago(minutes) })
      await insertAttempt(pool, key, { number: 2, outcome, claimed_at: ago(minutes) })
    }

    expect(await pagesOfSends({ unknown_since: '1h' })).toEqual(['doubt:1', 'doubt:2'])
    expect(await found({ unknown_since: '2h', until: '4h' })).toEqual(['doubt:3'])
    expect(await found({ unknown_since: '2h', status: 'sent,delivered' })).toEqual(['doubt:2', 'doubt:3'])
    expect(await found({ unknown_since: '1h', q: 'doubt' })).toEqual(['doubt:1', 'doubt:2'])
    expect(await found({ unknown_since: '1h', q: 'doubt:3' })).toEqual([])
    expect(await countSends(pool, sendFilter(() => NOW).parse({ unknown_since: '2h', q: 'doubt' }))).toBe(3)
  })

  test('knows the source of the event that asked for a send, whoever wrote the row, and none for one that the API asked for', async () => {
    const event = await insertEvent(pool, 'evt_shop', { source: 'shop' })
    await insertSend(pool, 'by:event', { source_event: event })
    await insertSend(pool, 'by:api')
    await insertSend(pool, 'again:1', { state: 'rejected', source_event: event })

    expect(await found({ source: 'shop' })).toEqual(['by:event', 'again:1'].sort())
    await pool.query(`update email_sends set source_event = null where dedupe_key = 'again:1'`)
    expect(await found({ source: 'shop' })).toEqual(['by:event'])
  })
})

/** Each choice of each filter with each of the others. */
function combinations(choices: Record<string, readonly (string | undefined)[]>): Record<string, string>[] {
  return Object.entries(choices).reduce<Record<string, string>[]>(
    (queries, [name, values]) =>
      queries.flatMap((query) => values.map((value) => (value === undefined ? query : { ...query, [name]: value }))),
    [{}],
  )
}

test('whatever filters are combined, the pages of sends are those rows in that order, and so is their count', async () => {
  const event = await insertEvent(pool, 'evt_a', { source: 'a' })
  const states = ['queued', 'needs_review', 'sent', 'rejected']
  const rows = Array.from({ length: 24 }, (_, index) => ({
    dedupe_key: `${index % 2 ? 'order' : 'refund'}:${index}`,
    state: states[index % 4] ?? 'queued',
    policy: index % 3 ? 'claim' : 'per_period',
    source: index % 5 ? null : 'a',
    recipient: index % 7 < 3 ? 'Ada@example.com' : 'bob@shop.example',
    // Three at a time.
    minutes: Math.floor(index / 3) * 10,
  }))
  for (const { source, minutes, ...row } of rows)
    await insertSend(pool, row.dedupe_key, { ...row, queued_at: ago(minutes), ...(source && { source_event: event }) })
  const sorted = [...rows].sort((a, b) => a.minutes - b.minutes || (a.dedupe_key < b.dedupe_key ? 1 : -1))

  for (const query of combinations({
    status: [undefined, 'needs_review', 'queued,sent'],
    policy: [undefined, 'per_period'],
    source: [undefined, 'a'],
    recipient: [undefined, 'ADA@example.com'],
    since: [undefined, '45m'],
    until: [undefined, '15m'],
    q: [undefined, 'order', 'example', 're'],
  })) {
    const expected = sorted
      .filter(
        ({ dedupe_key, state, policy, source, recipient, minutes }) =>
          (!query.status || query.status.split(',').includes(state)) &&
          (!query.policy || policy === query.policy) &&
          (!query.source || source === query.source) &&
          (!query.recipient || recipient === 'Ada@example.com') &&
          (!query.since || minutes <= 45) &&
          (!query.until || minutes > 15) &&
          (!query.q || (query.q === 're' ? dedupe_key.startsWith('re') : `${dedupe_key} ${recipient}`.includes(query.q))),
      )
      .map(({ dedupe_key }) => dedupe_key)

    expect(await pagesOfSends(query), JSON.stringify(query)).toEqual(expected)
    expect(await countSends(pool, sendFilter(() => NOW).parse(query)), JSON.stringify(query)).toBe(expected.length)
  }
})

test('whatever filters are combined, the pages of events are those rows in that order, and so is their count', async () => {
  const statuses = ['pending', 'processed', 'ignored', 'failed', 'quarantined']
  const rows = Array.from({ length: 30 }, (_, index) => ({
    event_id: `evt_${index}`,
    source: ['a', 'b', 'c'][index % 3] ?? '',
    type: index % 4 ? 'paid' : null,
    status: statuses[index % 5] ?? '',
    livemode: [true, false, null][(index % 7) % 3] ?? null,
    redeliveries: index % 6 ? 0 : 2,
    hasConflict: index % 8 === 0,
    isNamed: index % 9 < 3,
    minutes: 290 - index * 10,
  }))
  for (const { hasConflict, isNamed, minutes, event_id, ...row } of rows) {
    const processed_at = row.status === 'processed' ? NOW : null
    const id = await insertEvent(pool, event_id, { ...row, processed_at, received_at: ago(minutes) })
    if (hasConflict)
      for (const hash of ['\\x01', '\\x02'])
        await pool.query(`insert into webhook_conflicts (event, body, body_sha256) values ($1, '', $2::bytea)`, [id, hash])
    if (isNamed) await insertRef('cus_named', id)
  }
  const sorted = [...rows].reverse()

  for (const query of combinations({
    source: [undefined, 'b', 'nowhere'],
    type: [undefined, 'paid'],
    status: [undefined, 'processed', 'failed,ignored'],
    mode: [undefined, 'live', 'test'],
    has: [undefined, 'conflict', 'redelivery'],
    ref: [undefined, 'CUS_named'],
    since: [undefined, '205m'],
    until: [undefined, '95m'],
  })) {
    const expected = sorted
      .filter(
        (row) =>
          (!query.source || row.source === query.source) &&
          (!query.type || row.type === query.type) &&
          (!query.status || query.status.split(',').includes(row.status)) &&
          (!query.mode || (query.mode === 'test') === (row.livemode === false)) &&
          (query.has !== 'conflict' || row.hasConflict) &&
          (query.has !== 'redelivery' || row.redeliveries > 0) &&
          (!query.ref || row.isNamed) &&
          (!query.since || row.minutes <= 205) &&
          (!query.until || row.minutes > 95),
      )
      .map(({ event_id }) => event_id)

    const filter = eventFilter(() => NOW).parse({ ...query, limit: '200' })
    expect(
      (await listEvents(pool, filter)).events.map((event) => event.event_id),
      JSON.stringify(query),
    ).toEqual(expected)
    expect(await countEvents(pool, filter), JSON.stringify(query)).toBe(expected.length)
    if (expected.length > 2 && expected.length < 6) expect(await pagesOfEvents(query), JSON.stringify(query)).toEqual(expected)
  }
  expect(await pagesOfEvents({})).toEqual(sorted.map(({ event_id }) => event_id))
  expect(await pagesOfEvents({ event_id: 'evt_7' })).toEqual(['evt_7'])
  expect(await pagesOfEvents({ event_id: 'evt_7', ref: 'cus_named' })).toEqual([])
  expect(await pagesOfEvents({ event_id: 'evt_7', has: 'redelivery' })).toEqual([])
  expect(await pagesOfEvents({ event_id: 'evt_6', has: 'redelivery' })).toEqual(['evt_6'])
})

test('rows are found between two times although numbers are missing and some were committed late', async () => {
  expect(await findIdBounds(pool, ago(60), NOW)).toEqual({ low: '0', high: '0' })
  const at: Date[] = []
  const secondsAgo = (seconds: number) => new Date(NOW.getTime() - seconds * 1_000)
  for (let index = 0; index < 60; index += 1) {
    // Up to half a minute out of order.
    at.push(secondsAgo(600 - index * 10 - (index % 3) * 10 + (index % 5) * 6))
    await insertEvent(pool, `evt_${index}`, { received_at: at[index] })
    if (index % 4 === 0)
      await pool.query(`select nextval(pg_get_serial_sequence('webhook_events', 'id')) from generate_series(1, 100)`)
  }

  for (let since = 620; since > -20; since -= 7) {
    for (const until of [since - 33, since - 120, since]) {
      const { events } = await eventsOf({
        since: secondsAgo(since).toISOString(),
        until: secondsAgo(until).toISOString(),
        limit: '200',
      })
      const expected = at
        .flatMap((time, index) => (time >= secondsAgo(since) && time < secondsAgo(until) ? [`evt_${index}`] : []))
        .reverse()
      expect(
        events.map((event) => event.event_id),
        `${since} ${until}`,
      ).toEqual(expected)
    }
  }
})

describe('the search box of the header', () => {
  test('opens the event of an ID, the only send of a search, and else says that there are several or none', async () => {
    const event = await insertEvent(pool, 'evt_1')
    await insertSend(pool, 'invoice:INV-1:paid', { source_event: event })
    await insertFollowUp(pool, event, 'invoice:INV-1:paid')
    await insertSend(pool, 'invoice:INV-2:paid')

    expect(await findAnything(pool, 'evt_1')).toEqual({ kind: 'event', id: event })
    expect(await findAnything(pool, 'INV-1')).toEqual({ kind: 'send', key: 'invoice:INV-1:paid' })
    expect(await findAnything(pool, 'invoice')).toEqual({ kind: 'sends' })
    expect(await findAnything(pool, 'INV-3')).toEqual({ kind: 'nothing' })
    await insertEvent(pool, 'evt_1', { source: 'shop' })
    expect(await findAnything(pool, 'evt_1')).toEqual({ kind: 'events' })
  })

  test('takes a number that is a whole part of a key for that, rather than for the beginning of longer ones', async () => {
    for (const key of ['invoice:INV-10:paid', 'invoice:INV-104:paid', 'invoice:a%3Ab:paid', 'invoice:a%3Abc:paid'])
      await insertSend(pool, key)

    expect(await findAnything(pool, 'NV-10')).toEqual({ kind: 'sends' })
    expect(await findAnything(pool, 'INV-10')).toEqual({ kind: 'send', key: 'invoice:INV-10:paid' })
    expect(await findAnything(pool, 'invoice')).toEqual({ kind: 'sends' })
  })
})

describe('why nothing was found', () => {
  test.each([
    ['no_event', {}, undefined],
    ['no_rule', { status: 'ignored', processed_at: null }, undefined],
    ['waiting', { status: 'pending', processed_at: null }, undefined],
    ['quarantined', { status: 'quarantined', processed_at: null, error: 'not JSON' }, undefined],
    ['failed', { status: 'failed', processed_at: null, error: 'source shop is not configured' }, undefined],
    ['failed', {}, { outcome: 'failed', error: 'the customer has no address' }],
  ] as const)('the chain broke at %s', async (broke, columns, followUp) => {
    if (broke !== 'no_event') {
      const event = await insertEvent(pool, 'evt_1', columns)
      await insertRef('inv-1042', event)
      if (followUp) await insertFollowUp(pool, event, null, followUp)
    }

    const answer = await explainNoHit(pool, 'INV-1042')

    expect(answer.broke).toBe(broke)
    expect(answer.events.map(({ event_id }) => event_id)).toEqual(broke === 'no_event' ? [] : ['evt_1'])
    const why = followUp?.error ?? ('error' in columns ? columns.error : '')
    expect(answer.text).toContain(why)
    expect(answer.searched).toContain('recipients')
  })

  test('an event is found by its object too, with the send that it asked for and that was refused', async () => {
    const event = await insertEvent(pool, 'evt_1', { object_ref: 'in_1' })
    await insertSend(pool, 'invoice:X:paid', { state: 'rejected' })
    await insertFollowUp(pool, event, 'invoice:X:paid')

    const { broke, events } = await explainNoHit(pool, 'in_1')

    expect(broke).toBe('not_sent')
    expect(events[0]?.follow_ups).toEqual([
      { rule: 'receipts', outcome: 'queued', error: null, dedupe_key: 'invoice:X:paid', send_status: 'rejected' },
    ])
  })

  test('a send that only the other filters leave out is said to be there', async () => {
    await insertSend(pool, 'invoice:INV-1042:paid')

    expect((await explainNoHit(pool, 'INV-1042')).broke).toBe('filtered')
  })
})

describe('the search in raw bodies', () => {
  const insertBody = (id: string, body: string, columns = {}) =>
    insertEvent(pool, id, { body: Buffer.from(body), received_at: ago(10), ...columns })
  const hits = async (text: string, minutes = 60) =>
    (await searchBodies(pool, text, ago(minutes))).events.map(({ event_id }) => event_id)

  test('finds a text as it is and as JSON writes it, the newest first', async () => {
    await insertBody('plain', '{"note":"für Ada"}')
    await insertBody('escaped', '{"note":"f\\u00fcr Ada"}')
    await insertBody('quoted', '{"note":"say \\"hi\\" at a\\/b"}')
    await insertBody('xml', '<a>say "hi"</a>')

    expect(await hits('für Ada')).toEqual(['escaped', 'plain'])
    expect(await hits('say "hi"')).toEqual(['xml', 'quoted'])
    expect(await hits('a/b')).toEqual(['quoted'])
    expect(await hits('nowhere')).toEqual([])
  })

  test('looks into a body that several events share, not into what was emptied or came earlier', async () => {
    const sha256 = Buffer.alloc(32, 7)
    await pool.query('insert into webhook_bodies (sha256, body) values ($1, $2)', [sha256, 'needle'])
    await insertBody('shared', '', { body: null, body_sha256: sha256 })
    await insertBody('emptied', '', { body: null, body_sha256: sha256, body_emptied_at: NOW })
    await insertBody('old', 'needle', { received_at: ago(61) })

    expect(await searchBodies(pool, 'needle', ago(60))).toMatchObject({
      events: [{ event_id: 'shared' }],
      is_complete: true,
      searched: 2,
    })
  })

  test('tells 20 at most, and that there are more', async () => {
    for (let index = 0; index < 21; index += 1) await insertBody(`evt_${index}`, 'needle')

    const { events, is_complete } = await searchBodies(pool, 'needle', ago(60))

    expect({ hits: events.length, is_complete }).toEqual({ hits: 20, is_complete: false })
  })
})
