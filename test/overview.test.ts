import { beforeEach, describe, expect, test } from 'vitest'
import { readConfig, type UserConfig } from '../src/config.ts'
import { limitsSchema } from '../src/limits.ts'
import { sendFilter } from '../src/ops/filters.ts'
import { createOverview, findOverview } from '../src/ops/overview.ts'
import { decisionsCell, processingCell, receivingCell, reportsCell, sendingCell, storageCell } from '../src/ops/overview-cells.ts'
import { findLongestGaps } from '../src/ops/overview-facts.ts'
import { figurePart, figures } from '../src/ops/page/figures.ts'
import { markupOf } from '../src/ops/page/html.ts'
import { listSends } from '../src/ops/send-queries.ts'
import { findSeries } from '../src/ops/series.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'
import { resetControl } from './support/sends.ts'

const database = await testDatabase()
const { pool } = database
const NOW = new Date('2026-11-29T14:00:00Z')
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const ago = (ms: number) => new Date(NOW.getTime() - ms)
const limits = limitsSchema.parse({})
const userConfig: UserConfig = {
  sources: {
    stripe: { provider: 'stripe', secrets: ['whsec_of_the_tests'] },
    inboxili: { provider: 'inboxili', secrets: ['inboxili_of_the_tests'] },
  },
}
const config = readConfig(userConfig)

beforeEach(async () => {
  await pool.query(
    'truncate webhook_events, email_sends, source_minutes, source_secrets, ack_minutes, processes, rate_slots, pgboss.job, audit_log cascade',
  )
  await resetControl(pool)
})

describe('a cell says in a word what is wrong, by the limits', () => {
  const receiving = {
    requests: 1_000,
    refused: 0,
    unavailable: 0,
    ack_p99_ms: 25,
    last_verified: [{ source: 'stripe', at: ago(2_000) }],
  }
  const quiet = (ms: number) => [{ source: 'stripe', at: ago(ms) }]
  test.each([
    ['all well', {}, {}, 'ok', 'OK'],
    ['as many wrong signatures as may be', { refused: 50 }, {}, 'ok', 'OK'],
    ['more wrong signatures', { refused: 51 }, {}, 'attention', 'Wrong signatures'],
    ['a large share of few', { requests: 19, refused: 19 }, {}, 'ok', 'OK'],
    ['slow answers', { ack_p99_ms: 750 }, {}, 'attention', 'Slow'],
    ['answers slower than all buckets', { ack_p99_ms: Number.POSITIVE_INFINITY }, {}, 'attention', 'Slow'],
    ['503s, whatever else is', { unavailable: 1, refused: 900 }, {}, 'problem', 'Answering 503'],
    ['as long a silence as may be', { last_verified: quiet(3 * HOUR) }, { stripe: HOUR }, 'ok', 'OK'],
    [
      'a longer silence of the only source',
      { last_verified: quiet(3 * HOUR + 1) },
      { stripe: HOUR },
      'problem',
      'Nothing arrives',
    ],
    ['half an hour is always allowed', { last_verified: quiet(30 * MINUTE) }, { stripe: MINUTE }, 'ok', 'OK'],
    ['half an hour is over', { last_verified: quiet(30 * MINUTE + 1) }, { stripe: MINUTE }, 'problem', 'Nothing arrives'],
    ['silence of which nothing is expected', { last_verified: quiet(900 * HOUR) }, {}, 'ok', 'OK'],
    [
      'one source of two is quiet',
      { last_verified: [{ source: 'inboxili', at: ago(0) }, ...quiet(HOUR)] },
      { stripe: MINUTE, inboxili: MINUTE },
      'attention',
      'Quiet',
    ],
    ['nothing was ever verified', { last_verified: [] }, {}, 'ok', 'OK'],
    [
      'a source that is not configured any more',
      { last_verified: [{ source: 'gone', at: ago(HOUR) }] },
      { gone: MINUTE },
      'ok',
      'OK',
    ],
  ] as const)('Receiving: %s', (_name, facts, gaps, level, word) => {
    const cell = receivingCell(
      {
        ...receiving,
        ...facts,
        last_verified: [...((facts as Partial<typeof receiving>).last_verified ?? receiving.last_verified)],
      },
      ['stripe', 'inboxili'],
      new Map(Object.entries(gaps)),
      limits,
      NOW,
    )
    expect({ level: cell.level, word: cell.word }).toEqual({ level, word })
  })

  const processing = { waiting: 0, oldest_at: null, failed: 0, quarantined: 0, orphans: 0 }
  test.each([
    ['nothing waits', {}, 'ok', 'OK'],
    ['something has just come', { waiting: 1, oldest_at: ago(60_000) }, 'ok', 'OK'],
    ['it waits for long', { waiting: 1, oldest_at: ago(61_000) }, 'attention', 'Late'],
    ['it waits for very long', { waiting: 1, oldest_at: ago(601_000) }, 'problem', 'Stuck'],
    ['one failed', { failed: 1 }, 'attention', 'Failed'],
    ['one is quarantined', { quarantined: 1 }, 'attention', 'Quarantined'],
    ['one has no job', { waiting: 1, oldest_at: ago(61_000), failed: 1, orphans: 1 }, 'problem', 'Without a job'],
    ['nobody can tell about jobs', { orphans: null }, 'ok', 'OK'],
  ] as const)('Processing: %s', (_name, facts, level, word) => {
    expect(processingCell({ ...processing, ...facts }, limits, NOW)).toMatchObject({ level, word })
  })

  const sending = {
    held_reason: null,
    held_by: null,
    held_at: null,
    matching: 'auto' as const,
    matching_reason: null,
    waiting: 0,
    next_at: null,
    rate_limited: 0,
    calls: 0,
    unknown: 0,
    accepted: 0,
    last_report_at: null,
    open: 0,
    oldest_open_at: null,
  }
  test.each([
    ['nothing to do', {}, 'ok', 'OK'],
    ['ten minutes of queue', { waiting: 1_100 }, 'ok', 'OK'],
    ['more than ten minutes of queue', { waiting: 1_101 }, 'attention', 'Long queue'],
    ['a queue that begins late', { waiting: 1, next_at: new Date(NOW.getTime() + 11 * MINUTE) }, 'attention', 'Long queue'],
    ['429', { rate_limited: 2 }, 'attention', 'Slower'],
    ['less than one of a hundred unknown', { calls: 101, unknown: 1 }, 'ok', 'OK'],
    ['one of a hundred unknown', { calls: 100, unknown: 1 }, 'attention', 'Unknown outcomes'],
    ['paused', { held_reason: '401 unauthorized', held_at: ago(0), rate_limited: 1 }, 'problem', 'Paused'],
  ] as const)('Sending: %s', (_name, facts, level, word) => {
    expect(sendingCell({ ...sending, ...facts }, 110, limits, NOW)).toMatchObject({ level, word })
  })

  test.each([
    ['nothing was sent', {}, {}, 'ok', 'OK'],
    ['as many without a report as may be', {}, { reported: 95, unreported: 5 }, 'ok', 'OK'],
    ['more without a report', {}, { reported: 94, unreported: 6 }, 'attention', 'Missing'],
    ['suggestions only', { matching: 'suggest' }, {}, 'attention', 'Suggestions only'],
    ['silence after 20', { accepted: 20, last_report_at: ago(31 * MINUTE) }, {}, 'problem', 'Problem'],
    ['silence after 19', { accepted: 19, last_report_at: ago(31 * MINUTE) }, {}, 'ok', 'OK'],
    ['no silence', { accepted: 500, last_report_at: ago(30 * MINUTE) }, {}, 'ok', 'OK'],
    ['no report ever', { accepted: 20 }, {}, 'problem', 'Problem'],
  ] as const)('Delivery reports: %s', (_name, facts, day, level, word) => {
    const given = { reported: 0, unreported: 0, ...day }
    expect(reportsCell({ ...sending, ...facts }, given, true, limits, NOW)).toMatchObject({ level, word })
    expect(reportsCell({ ...sending, ...facts }, given, false, limits, NOW)).toMatchObject({ level: 'ok', word: 'OK' })
  })

  test.each([
    [0, null, 'ok', 'OK'],
    [1, ago(24 * HOUR), 'attention', '1 open'],
    [10_001, ago(24 * HOUR + 1), 'problem', '10,000+ open'],
  ] as const)('Decisions: %s open', (open, oldest_open_at, level, word) => {
    expect(decisionsCell({ open, oldest_open_at }, limits, NOW)).toMatchObject({ level, word })
  })

  test.each([
    [{ seconds: 12, workers: 1 }, 'ok', 'OK', 'sweep 12 s ago'],
    [{ seconds: 121, workers: 1 }, 'attention', 'Sweep late', 'sweep 2 min 1 s ago'],
    [{ seconds: null, workers: 1 }, 'ok', 'OK', 'no sweep yet'],
    [{ seconds: null, workers: 0 }, 'attention', 'No worker', 'no worker runs: nothing is processed, sent or swept'],
  ] as const)('Storage: %j', (sweep, level, word, text) => {
    const cell = storageCell(sweep, { orphans: 0 }, limits)
    expect(cell).toMatchObject({ level, word })
    expect(cell.lines[0]?.text).toBe(text)
  })

  test('the configuration moves a limit, and a wrong one is said', () => {
    const moved = readConfig({ ...userConfig, ops: { limits: { waitingSeconds: 5 } } })

    expect(processingCell({ ...processing, oldest_at: ago(6_000) }, moved.limits, NOW).level).toBe('attention')
    expect(moved.limits.waitingProblemSeconds).toBe(600)
    expect(() => readConfig({ ...userConfig, ops: { limits: { unknownShare: 5 } } })).toThrow(/ops\.limits\.unknownShare/)
    expect(() => readConfig({ ...userConfig, ops: { limits: { waiting: 5 } } })).toThrow(/ops\.limits/)
  })
})

test('what a source is used to is the longest gap around this time of day in 4 weeks', async () => {
  const minute = (source: string, at: Date, outcome = 'accepted') =>
    pool.query(`insert into source_minutes (source, minute, outcome, count) values ($1, $2, $3, 1)`, [source, at, outcome])
  const days = 24 * HOUR
  // Around 14:00 a day ago 20 minutes, 9 days ago 3 hours, 40 days ago more; at other times of day it doesn't count.
  for (const [from, to] of [
    [days + 5 * MINUTE, days - 15 * MINUTE],
    [9 * days + HOUR, 9 * days - 2 * HOUR],
  ] as const) {
    await minute('stripe', ago(from))
    await minute('stripe', ago(to))
  }
  for (let day = 1; day <= 29; day += 1) {
    await minute('steady', ago(day * days + 7 * MINUTE))
    await minute('steady', ago(day * days - MINUTE), 'duplicate')
    // What was refused is no sign of life.
    await minute('steady', ago(day * days), 'refused')
  }
  await minute('new', ago(HOUR))

  const gaps = await findLongestGaps(pool, ['stripe', 'steady', 'new', 'never'], NOW)

  expect(gaps.get('steady')).toBe(8 * MINUTE)
  // Between its two days there were no others, so the gap of the days between is the whole week.
  expect(gaps.get('stripe')).toBe(8 * days - 2 * HOUR - 5 * MINUTE)
  expect([...gaps.keys()].sort()).toEqual(['steady', 'stripe'])
})

describe('the overview', () => {
  const find = () => findOverview(pool, { config, sendsPerMinute: 60 })
  const cellOf = async (name: string) => (await find()).cells.find((cell) => cell.name === name)

  test('of an empty service has nothing to say but that no worker runs', async () => {
    const { level, title, cells, last_24_hours, queue, problems } = await find()

    expect({ level, title, problems }).toEqual({ level: 'attention', title: '! Storage: No worker', problems: [] })
    expect(cells.map(({ title, level }) => [title, level])).toEqual([
      ['Receiving', 'ok'],
      ['Processing', 'ok'],
      ['Sending', 'ok'],
      ['Delivery reports', 'ok'],
      ['Decisions', 'ok'],
      ['Storage', 'attention'],
    ])
    expect(last_24_hours.every(({ count }) => count === 0)).toBe(true)
    expect(queue).toEqual({ waiting: 0, per_minute: 60, done_at: null, href: '/ops/sends?status=queued' })
  })

  test('counts the sends of the last day by status, and says when the queue is done', async () => {
    await insertSend(pool, 'a', { queued_at: new Date() })
    await insertSend(pool, 'b', { queued_at: new Date(Date.now() - 25 * HOUR) })
    await insertSend(pool, 'c', { state: 'sent', bounced_at: new Date(), bounce_kind: 'hard' })

    const { last_24_hours, queue, at } = await find()

    expect(last_24_hours.filter(({ count }) => count > 0)).toEqual([
      { status: 'queued', count: 1, href: '/ops/sends?status=queued&since=24h' },
      { status: 'bounced', count: 1, href: '/ops/sends?status=bounced&since=24h' },
    ])
    expect(queue.waiting).toBe(2)
    expect(queue.done_at?.getTime()).toBe(at.getTime() + 2_000)
  })

  test('tells an event without a job from one whose job waits, and the newest problems', async () => {
    const long = new Date(Date.now() - 90_000)
    const pending = { status: 'pending', processed_at: null, received_at: long }
    const orphan = await insertEvent(pool, 'evt_orphan', pending)
    const waiting = await insertEvent(pool, 'evt_waiting', pending)
    await pool.query(`insert into pgboss.job (name, data) values ('process-event', $1)`, [{ event: waiting }])
    await insertEvent(pool, 'evt_failed', { status: 'failed', processed_at: null, error: 'no address' })
    await insertEvent(pool, 'evt_long_ago', {
      status: 'failed',
      processed_at: null,
      received_at: new Date(Date.now() - 25 * HOUR),
    })
    await insertSend(pool, 'invoice:1:paid', { state: 'needs_review', last_error: 'no answer in 15 s', queued_at: long })

    const { problems, title } = await find()
    const cell = await cellOf('processing')

    expect(cell).toMatchObject({ level: 'problem', word: 'Without a job' })
    expect(cell?.lines.map(({ text }) => text)).toEqual([
      '1 waiting events have no job',
      'oldest waits for 1 min',
      '1 failed in 24 h',
      '2 waiting',
    ])
    expect(title).toBe('✕ Processing: Without a job')
    expect(problems.map(({ text, href }) => [text, href.replace(/\d+$/, 'N')])).toEqual([
      ['evt_failed failed: no address', '/ops/events/N'],
      ['invoice:1:paid unknown: no answer in 15 s', '/ops/sends/invoice%3A1%3Apaid'],
    ])
    await pool.query(`update webhook_events set status = 'processed', processed_at = now() where id = $1`, [orphan])
    expect(await cellOf('processing')).toMatchObject({ level: 'attention', word: 'Late' })
  })

  test('tells problems that are the same as one, and when sending was held and lifted by itself', async () => {
    for (let index = 0; index < 30; index += 1)
      await insertSend(pool, `k${index}`, { state: 'rejected', last_error: '422 sender_not_verified' })
    await insertSend(pool, 'other', { state: 'rejected', last_error: '400 bad' })
    await pool.query(`insert into audit_log (at, actor, via, action, subject, reason) values
      (now() - interval '1 h', 'oncehook', 'oncehook', 'pause sending', 'sending', '5 calls in a row ended unknown'),
      (now() - interval '50 min', 'oncehook', 'oncehook', 'resume sending', 'sending', 'Inboxili took the send that was tried'),
      (now() - interval '40 min', 'ada', 'cli', 'pause sending', 'sending', 'a person does so knowingly')`)

    const { problems } = await find()

    expect(problems.map(({ text, href }) => [text, href])).toEqual(
      expect.arrayContaining([
        ['30 × not sent: 422 sender_not_verified', '/ops/sends?status=rejected&since=24h'],
        ['other not sent: 400 bad', '/ops/sends/other'],
        ['sending ran again by itself: Inboxili took the send that was tried', '/ops/audit?subject=sending'],
        ['sending paused by itself: 5 calls in a row ended unknown', '/ops/audit?subject=sending'],
      ]),
    )
    expect(problems).toHaveLength(4)
  })

  test('sees what the email API answers, and that reports stay away', async () => {
    for (let index = 0; index < 20; index += 1) {
      await insertSend(pool, `k${index}`, { state: 'sent', queued_at: new Date(Date.now() - 2 * HOUR) })
      await insertAttempt(pool, `k${index}`, { outcome: index ? 'accepted' : 'unknown', http_status: index === 1 ? 429 : null })
    }

    expect(await cellOf('sending')).toMatchObject({ level: 'attention', word: 'Unknown outcomes' })
    expect((await cellOf('sending'))?.lines.map(({ text }) => text)).toEqual([
      '5.0 % (1 of 20) of calls unknown in 1 h',
      '429 once in 10 min',
      'queue 0',
    ])
    expect(await cellOf('reports')).toMatchObject({ level: 'attention', word: 'Missing' })
    await insertSend(pool, 'k20', { state: 'sent' })
    await insertAttempt(pool, 'k20', { outcome: 'accepted' })
    expect(await cellOf('reports')).toMatchObject({ level: 'problem', word: 'Problem' })
    await insertReport(pool, await insertEvent(pool, 'm_1:delivered', { source: 'inboxili' }), { parked: 'foreign' })
    expect(await cellOf('reports')).toMatchObject({ level: 'attention', word: 'Missing' })
  })

  test('leads from the calls whose outcome nobody knew to as many sends, also where it is known by now', async () => {
    for (const [key, state, columns] of [
      ['open', 'needs_review', {}],
      ['settled', 'sent', {}],
      ['long ago', 'needs_review', { claimed_at: new Date(Date.now() - 2 * HOUR) }],
      ['accepted', 'sent', { outcome: 'accepted' }],
    ] as const) {
      await insertSend(pool, key, { state, queued_at: new Date(Date.now() - 3 * HOUR) })
      await insertAttempt(pool, key, { outcome: 'unknown', ...columns })
    }

    const [line] = (await cellOf('sending'))?.lines ?? []
    const query = Object.fromEntries(new URL(line?.href ?? '', 'http://page').searchParams)
    const { sends } = await listSends(pool, sendFilter(() => new Date()).parse(query))

    expect(line).toEqual({ text: '66.7 % (2 of 3) of calls unknown in 1 h', href: '/ops/sends?unknown_since=1h' })
    expect(sends.map(({ dedupe_key }) => dedupe_key).sort()).toEqual(['open', 'settled'])
  })

  test('is found once for all who look at about the same time, and anew after it failed', async () => {
    let looks = 0
    const counting = {
      query: (...args: [string]) => {
        if (String(args[0]).endsWith(' as now')) looks += 1
        if (looks === 1) return Promise.reject(new Error('away'))
        return pool.query(...args)
      },
    } as unknown as typeof pool
    const look = createOverview(counting, () => ({ config }))

    await expect(look()).rejects.toThrow('away')
    const found = await Promise.all([look(), look(), look()])

    expect(looks).toBe(2)
    expect(found[0]).toBe(found[2])
  })
})

describe('the figures over time', () => {
  test('are 60 points, with gaps where no process reported', async () => {
    const { rows } = await pool.query<{ at: Date }>(`select date_trunc('minute', now()) - interval '1 minute' as at`)
    const last = rows[0]?.at ?? NOW
    const minute = (back: number) => new Date(last.getTime() - back * MINUTE)
    await pool.query(
      `insert into source_minutes (source, minute, outcome, count) values
         ('stripe', $1, 'accepted', 120), ('shop', $1, 'quarantined', 60), ('stripe', $1, 'duplicate', 60), ('stripe', $1, 'refused', 999),
         ('stripe', $2, 'refused', 1)`,
      [minute(0), minute(2)],
    )
    await pool.query(`insert into ack_minutes (source, minute, counts) values ('', $1, array_fill(0, array[18]) || 1)`, [
      minute(0),
    ])
    await pool.query(
      `insert into processes (id, kind, host, pid, version, started_at, seen_at, clock_ahead_ms)
       values (gen_random_uuid(), 'serve', 'h', 1, '1', $1, $2, 0)`,
      [minute(4), new Date(minute(3).getTime() + 1_000)],
    )
    await insertSend(pool, 'a', { state: 'needs_review' })
    await insertAttempt(pool, 'a', { outcome: 'unknown', claimed_at: minute(0) })
    await insertAttempt(pool, 'a', { outcome: 'accepted', claimed_at: minute(0), number: 2 })
    await insertAttempt(pool, 'a', { outcome: 'never_called', claimed_at: minute(0), number: 3 })

    const { points, seconds, duplicates, unknown, calls } = await findSeries(pool, '1h')

    expect({ seconds, duplicates, unknown, calls, points: points.length }).toEqual({
      seconds: 60,
      duplicates: 60,
      unknown: 1,
      calls: 2,
      points: 60,
    })
    expect(points[59]).toEqual({
      at: last,
      events_per_second: 3,
      ack_p99_ms: 10_000,
      duplicates_percent: 25,
      unknown_percent: 50,
    })
    const nothing = { ack_p99_ms: null, duplicates_percent: null, unknown_percent: null }
    expect(points.slice(54, 59).map(({ at: _, ...point }) => point)).toEqual([
      { events_per_second: null, ...nothing },
      { events_per_second: 0, ...nothing },
      { events_per_second: 0, ...nothing },
      { events_per_second: 0, ...nothing },
      { events_per_second: null, ...nothing },
    ])
  })

  test('lead from the unknown calls to their sends, and nowhere without a call', () => {
    const point = { at: NOW, events_per_second: null, ack_p99_ms: null, duplicates_percent: null }
    const told = (unknown_percent: number | null) =>
      figures.map((figure) => {
        const points = [{ ...point, unknown_percent }]
        return markupOf(figurePart(figure, { range: '24h', seconds: 1_440, points, duplicates: 0, unknown: 4, calls: 1_204 }))
      })

    const links = (parts: string[]) => parts.flatMap((part) => part.match(/<a .*?<\/a>/g) ?? [])
    expect(links(told(0.3))).toEqual(['<a href="/ops/sends?unknown_since=24h">max 0.3 %, 0.3 % (4 of 1,204)</a>'])
    expect(links(told(null))).toEqual([])
  })

  test.each([
    ['24h', 1_440],
    ['7d', 10_080],
  ] as const)('of %s add up what lies in a stretch', async (range, seconds) => {
    await pool.query(
      `insert into source_minutes (source, minute, outcome, count)
       select 'stripe', date_trunc('minute', now()) - n * interval '1 min', 'accepted', 6 from generate_series(1, $1::int / 60) n`,
      [seconds],
    )

    const { points } = await findSeries(pool, range)

    expect(points.at(-1)?.events_per_second).toBe(0.1)
    expect(points.slice(0, 59).every((point) => point.events_per_second === null)).toBe(true)
  })
})

describe('the screen', async () => {
  const pages = await testPages(database, userConfig)

  test('shows the cells in words, the worst in the title, and every number as a link to its list', async () => {
    await insertSend(pool, 'invoice:<b>:paid', { state: 'needs_review', last_error: '<script>alert(1)</script>' })

    const { text, status } = await pages.get('/ops')

    expect(status).toBe(200)
    expect(text).toContain('<title>! Decisions: 1 open · Overview · Oncehook</title>')
    expect(text).toContain('<li class="cell attention" id="decisions">')
    expect(text).toContain('<a href="/ops/sends?status=needs_review&amp;since=24h">Needs a decision <b>1</b></a>')
    expect(text).toContain('<a href="/ops/sends/invoice%3A%3Cb%3E%3Apaid">invoice:&lt;b&gt;:paid unknown: &lt;script&gt;')
    expect(text.match(/<svg /g)).toHaveLength(4)
    expect(text).toContain('aria-label="Events/s of the last 1h: last –, no value in this time"')
    expect(text).not.toMatch(/<script>alert| style=/)
  })

  test('draws a gap as a gap', async () => {
    await pool.query(
      `insert into source_minutes (source, minute, outcome, count)
       select 'stripe', date_trunc('minute', now()) - n * interval '1 min', 'accepted', 60 from unnest(array[1, 25, 97]) n`,
    )

    const { text } = await pages.get('/ops/charts?range=24h')

    const path = /Events\/s[\s\S]*?<path d="([^"]*)"/.exec(text)?.[1] ?? ''
    // One alone, and two together, whose line begins anew.
    expect(path).toBe('M223.7 2.0h0.01M235.9 2.0L240.0 2.0')
    expect(text.match(/data-value=""/g)).toHaveLength(57 + 60 + 57 + 60)
    expect((await pages.get('/ops/charts?range=1y')).status).toBe(400)
  })
})
