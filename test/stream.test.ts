import { once } from 'node:events'
import { createServer, get as httpGet, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { countBenignVariant } from '../src/events/store.ts'
import { createLog } from '../src/log.ts'
import { type Change, type ChangesDeps, createChanges } from '../src/ops/changes.ts'
import type { Overview } from '../src/ops/overview.ts'
import { createToken } from '../src/ops/tokens.ts'
import { testApi } from './support/api.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'

const database = await testDatabase()
const { pool } = database
const log = createLog('silent', 'test')
const overview = (title: string): Overview => ({
  at: new Date(),
  level: 'ok',
  title,
  cells: [],
  last_24_hours: [],
  queue: { waiting: 0, per_minute: 110, done_at: null, href: '/ops/sends' },
  problems: [],
})
let title = 'OK'
const findOverview = vi.fn(async () => overview(title))
const changesWith = (more: Partial<ChangesDeps> = {}) => createChanges({ reads: pool, findOverview, log, everyMs: 10, ...more })

const ends: (() => void)[] = []
/** How often was looked after nobody listened any more. */
const looksLater: (() => number)[] = []
function listenTo(changes = changesWith()) {
  const ending = new AbortController()
  ends.push(() => ending.abort())
  // Each is somebody else.
  const batches = changes.listen(ending.signal, `one:${ends.length}`)
  if (!batches) throw new Error('too many listen')
  const heard: Change[] = []
  const done = (async () => {
    for await (const batch of batches) heard.push(...batch)
  })()
  return { heard, done, end: () => ending.abort(), of: (kind: Change['kind']) => heard.filter((change) => change.kind === kind) }
}
beforeEach(() => {
  for (const end of ends.splice(0)) end()
  findOverview.mockClear()
  title = 'OK'
})
afterAll(() => {
  for (const end of ends.splice(0)) end()
  expect(looksLater.map((looks) => looks()).filter((count) => count > 1)).toEqual([])
  expect(looksLater).toHaveLength(1)
})

describe('changes', () => {
  test('tell sends and events by ID and status only, once each, whatever happens to them', async () => {
    await insertSend(pool, 'old:1', { queued_at: new Date('2020-01-01') })
    const { heard, of } = listenTo()
    await expect.poll(() => of('stats')).toHaveLength(1)

    await insertSend(pool, 'new:1', { recipient: 'secret@example.com' })
    const event = await insertEvent(pool, 'evt_new', { status: 'pending', processed_at: null })
    await expect.poll(() => of('event')).toHaveLength(1)
    await pool.query(
      `update email_sends set state = 'claimed', claim_token = gen_random_uuid(), claimed_at = now(), version = 2 where dedupe_key = 'new:1'`,
    )
    await pool.query(`update webhook_events set status = 'processed', processed_at = now() where event_id = 'evt_new'`)
    await expect.poll(() => of('event')).toHaveLength(2)
    await countBenignVariant(pool, 'stripe', event, true)
    await expect.poll(() => of('event')).toHaveLength(3)
    await expect.poll(() => of('send')).toHaveLength(2)

    expect(of('send')).toEqual([
      { kind: 'send', dedupe_key: 'new:1', status: 'queued', version: 1 },
      { kind: 'send', dedupe_key: 'new:1', status: 'claimed', version: 2 },
    ])
    expect(of('event')).toEqual([
      { kind: 'event', id: event, status: 'pending' },
      { kind: 'event', id: event, status: 'processed' },
      { kind: 'event', id: event, status: 'processed' },
    ])
    expect(JSON.stringify(heard)).not.toContain('example.com')
  })

  test('tell of an old send that a report, a call or a person has come to', async () => {
    await pool.query(
      `insert into email_sends (dedupe_key, match_key, state, policy, recipient, message, message_sha256, requested_by, completed_at)
       select 'filler:' || n, 'x@example.com', 'sent', 'claim', 'x@example.com', '{}', '\\x00', 'test', now() from generate_series(1, 300) n`,
    )
    for (const key of ['old:report', 'old:call', 'old:person'])
      await insertSend(pool, key, { state: 'sent', queued_at: new Date('2020-01-01') })
    const { of } = listenTo()
    await expect.poll(() => of('stats')).toHaveLength(1)

    const attempt = await insertAttempt(pool, 'old:report', { message_id: 'm_old', claimed_at: new Date('2020-01-01') })
    await insertReport(pool, await insertEvent(pool, 'm_old:delivered', { source: 'inboxili' }), { attempt })
    await insertAttempt(pool, 'old:call')
    await pool.query(`insert into audit_log (actor, via, action, subject) values ('x', 'api', 'reopen', 'send:old:person')`)

    await expect
      .poll(() =>
        of('send')
          .map((change) => (change.kind === 'send' ? change.dedupe_key : ''))
          .sort(),
      )
      .toEqual(['old:call', 'old:person', 'old:report'])
  })

  test('tell the figures at first, and then when they have changed', async () => {
    const { of } = listenTo()
    await expect.poll(() => of('stats')).toHaveLength(1)
    await expect.poll(() => findOverview.mock.calls.length, { interval: 100 }).toBe(2)
    const unchanged = of('stats').length

    title = '1 problem'

    await expect.poll(() => of('stats').length).toBe(2)
    expect(unchanged).toBe(1)
    expect(of('stats')[1]).toMatchObject({ overview: { title: '1 problem' } })
  })

  test('I19 come from one look for all, and nobody looks while nobody listens', async () => {
    let looked = 0
    const query = (...given: Parameters<typeof pool.query>) => {
      if (JSON.stringify(given).includes('latest-events')) looked += 1
      return pool.query(...given)
    }
    const changes = changesWith({ reads: { query } as never })
    const looks = () => looked
    const listeners = Array.from({ length: 20 }, () => listenTo(changes))
    await expect.poll(looks).toBeGreaterThan(3)

    for (const { end } of listeners) end()
    await Promise.all(listeners.map(({ done }) => done))
    const before = looks()
    // The one that is due comes still; the rest of this file gives others their time.
    looksLater.push(() => looks() - before)

    expect(findOverview.mock.calls.length).toBeLessThan(3)
    expect(looks()).toBeLessThan(20 * 3)
  })

  test('I19 are looked for by indexes only, however many rows there are', async () => {
    const asked = new Map<string, string>()
    const query = (config: { name: string; text: string }) => {
      asked.set(config.name, config.text)
      return pool.query(config)
    }
    const { of } = listenTo(changesWith({ reads: { query } as never }))
    await expect.poll(() => of('stats')).toHaveLength(1)

    const plans = await inTransaction(pool, async (tx) => {
      // What these would do for a few rows tells nothing of many.
      await tx.query('set local enable_seqscan = off; set local enable_sort = off; set local enable_bitmapscan = off')
      const found: string[] = []
      for (const text of asked.values()) {
        const { rows } = await tx.query<{ 'QUERY PLAN': string }>(`explain ${text}`)
        found.push(...rows.map((row) => row['QUERY PLAN']))
      }
      return found
    })

    expect(asked.size).toBe(2)
    expect(plans.filter((line) => /Seq Scan|Sort Key: .*(queued_at|claimed_at|event|at) DESC/.test(line))).toEqual([])
    expect(plans.filter((line) => /Index/.test(line)).length).toBeGreaterThan(5)
  })

  test('I18 refuse more listeners than may be, until one has gone, even if it never read', async () => {
    const changes = changesWith({ mostListeners: 2 })
    const [one, two] = [new AbortController(), new AbortController()]
    ends.push(() => two.abort())

    const taken = [changes.listen(one.signal, 'mia'), changes.listen(two.signal, 'mia'), changes.listen(two.signal, 'mia')]
    one.abort()

    expect(taken.map((batches) => batches !== undefined)).toEqual([true, true, false])
    expect(changes.listen(two.signal, 'mia')).toBeDefined()
  })

  test('I18 take five listeners of one session or token, and leave the rest to others', async () => {
    const changes = changesWith()
    const [first, others] = [new AbortController(), new AbortController()]
    ends.push(() => others.abort())
    const isTaken = (by: string) => changes.listen(others.signal, by) !== undefined

    changes.listen(first.signal, 'session:a')
    const taken = Array.from({ length: 5 }, () => isTaken('session:a'))

    expect(taken).toEqual([true, true, true, true, false])
    expect(isTaken('session:b')).toBe(true)
    first.abort()
    expect([isTaken('session:a'), isTaken('session:a')]).toEqual([true, false])
  })

  test('I18 keep no more than so much for a slow reader, and tell it to look at everything', async () => {
    const changes = changesWith()
    const ending = new AbortController()
    ends.push(() => ending.abort())
    const slow = changes.listen(ending.signal, 'mia')
    const { of } = listenTo(changes)
    await expect.poll(() => of('stats')).toHaveLength(1)

    for (let round = 1; round <= 4; round += 1) {
      const heard = of('event').length
      await pool.query(
        `insert into webhook_events (source, event_id, id_basis, id_signed, body, body_sha256, headers, status, processed_at)
         select 'many', $1 || ':' || n, 'provider', true, '', '\\x00', '{}', 'processed', now() from generate_series(1, 400) n`,
        [`round${round}`],
      )
      await expect.poll(() => of('event').length).toBeGreaterThanOrEqual(heard + 400)
    }
    const first = (await slow?.next())?.value ?? []

    expect(first.map(({ kind }: Change) => kind)).toContain('reload')
    expect(first.length).toBeLessThanOrEqual(1_000)
  })

  test('go on after the database was away', async () => {
    let isAway = true
    const query = vi.fn((...given: Parameters<typeof pool.query>) =>
      isAway ? Promise.reject(new Error('away')) : pool.query(...given),
    )
    const { of } = listenTo(changesWith({ reads: { query } as never }))
    await expect.poll(() => query.mock.calls.length).toBeGreaterThan(2)
    const before = of('stats').length

    isAway = false

    await expect.poll(() => of('stats')).toHaveLength(1)
    expect(before).toBe(0)
  })
})

describe('GET /v1/stats', async () => {
  const { get } = await testApi(database)

  test.each([
    ['', '1h', 60],
    ['?range=24h', '24h', 1_440],
    ['?range=7d', '7d', 10_080],
  ])('%s has the cells, and 60 points of %s', async (query, range, seconds) => {
    const { body } = await get(`/v1/stats${query}`)

    expect(body.series).toMatchObject({ range, seconds })
    expect(body.series.points).toHaveLength(60)
    expect(body.overview.cells.map(({ name }: { name: string }) => name)).toEqual([
      'receiving',
      'processing',
      'sending',
      'reports',
      'decisions',
      'storage',
    ])
  })

  test('is for readers and operators, and knows no other range', async () => {
    expect((await get('/v1/stats', 'sender')).status).toBe(403)
    expect((await get('/v1/stats?range=1y')).body).toMatchObject({ status: 400, errors: [{ path: 'range' }] })
  })
})

describe('GET /v1/stream', async () => {
  const stopping = new AbortController()
  const changes = changesWith({ beatMs: 100, mostListeners: 3 })
  const { app, tokens } = await testApi(database, { changes, stopping: stopping.signal })
  const server = createServer(app).listen(0, '127.0.0.1')
  await once(server, 'listening')
  afterAll(() => void server.close())
  const { port } = server.address() as AddressInfo
  async function open(token = tokens.reader) {
    const req = httpGet({
      port,
      host: '127.0.0.1',
      path: '/v1/stream',
      headers: { authorization: `Bearer ${token}` },
      agent: false,
    })
    const [res] = (await once(req, 'response')) as [IncomingMessage]
    let text = ''
    res.setEncoding('utf8').on('data', (part: string) => {
      text += part
    })
    res.on('error', () => undefined)
    return { req, res, text: () => text, ended: new Promise<void>((done) => res.once('close', done)) }
  }

  test('C-67 is for readers and operators, is not kept by anybody, and has a heartbeat', async () => {
    const stream = await open()
    const other = await open(tokens.sender)
    // From then on it hears of everything.
    await expect.poll(stream.text).toContain('event: stats')

    await insertSend(pool, 'stream:1', { recipient: 'secret@example.com' })
    await expect.poll(stream.text).toContain('event: send\ndata: {"dedupe_key":"stream:1","status":"queued","version":1}\n\n')
    await expect.poll(stream.text).toContain('\n:\n\n')

    expect([stream.res.statusCode, stream.res.headers['content-type'], stream.res.headers['cache-control']]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
      'no-store',
    ])
    expect(stream.text()).toMatch(/^retry: 3000\n\n/)
    expect(stream.text()).toContain('event: stats\ndata: {"at":"')
    expect(stream.text()).not.toContain('secret@')
    expect(other.res.statusCode).toBe(403)
    stream.req.destroy()
    await stream.ended
  })

  test('I18 is refused when as many listen as may, and free again when one goes', async () => {
    const streams = [await open(), await open(), await open()]

    const refused = await open()
    await expect.poll(refused.text).toContain('"code":"too_many_streams"')
    streams[0]?.req.destroy()

    expect([refused.res.statusCode, refused.res.headers['retry-after']]).toEqual([503, '30'])
    await expect
      .poll(async () => {
        const next = await open()
        streams.push(next)
        return next.res.statusCode
      })
      .toBe(200)
    for (const { req } of streams) req.destroy()
    await Promise.all(streams.map(({ ended }) => ended))
  })

  test('ends when its token is revoked', async () => {
    const token = await createToken(pool, { name: 'leaver', role: 'reader' })
    const stream = await vi.waitUntil(async () => {
      const next = await open(token)
      return next.res.statusCode === 200 && next
    })

    await pool.query(`update api_tokens set revoked_at = now() where name = 'leaver'`)
    await stream.ended

    expect(stream.res.complete).toBe(true)
  })

  test('ends when the process stops, as a whole answer', async () => {
    const stream = await vi.waitUntil(async () => {
      const next = await open()
      return next.res.statusCode === 200 && next
    })

    stopping.abort()
    await stream.ended

    expect(stream.res.complete).toBe(true)
  })
})
