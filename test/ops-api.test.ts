import { once } from 'node:events'
import { createServer, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import supertest from 'supertest'
import { describe, expect, test } from 'vitest'
import { readConfig } from '../src/config.ts'
import type { Replayed } from '../src/events/replay.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createLog } from '../src/log.ts'
import { opsRoutes } from '../src/ops/routes.ts'
import { createToken } from '../src/ops/tokens.ts'
import { testDatabase } from './support/database.ts'
import { holdToDeclarations } from './support/declared.ts'
import { insertAttempt, insertEvent, insertFollowUp, insertReport, insertSend, insertSettlement } from './support/ops-rows.ts'
import { untilWaiting } from './support/sends.ts'

const { pool, url } = await testDatabase()
const { enqueueSends } = await openJobs(url)
const tokens = {
  reader: await createToken(pool, { name: 'grafana', role: 'reader' }),
  operator: await createToken(pool, { name: 'mia', role: 'operator' }),
  sender: await createToken(pool, { name: 'shop', role: 'sender' }),
}
type Caller = keyof typeof tokens

const replays: { id: string; actor: string; via: string }[] = []
let replayed: Replayed = { outcome: 'queued' }

function depsOf() {
  return {
    pool,
    reads: pool,
    log: createLog('silent', 'test'),
    enqueueSends,
    config: () => readConfig({ sources: {} }),
    fingerprints: () => [],
    runs: {} as never, // its routes have tests of their own
    replay: async (id: string, actor: string, via: string) => {
      replays.push({ id, actor, via })
      return replayed
    },
  }
}
function newApp() {
  return express()
    .set('etag', false)
    .use(holdToDeclarations())
    .use(opsRoutes(depsOf()))
    .use(
      ((error, _req, res, _next) =>
        void res.status(500).json({ unhandled: String(error) })) satisfies express.ErrorRequestHandler,
    )
}
const app = newApp()

const get = (path: string, by: Caller = 'reader') => supertest(app).get(path).set('authorization', `Bearer ${tokens[by]}`)
const post = (path: string, body: unknown, by: Caller = 'operator') =>
  supertest(app)
    .post(path)
    .set('authorization', `Bearer ${tokens[by]}`)
    .send(body as object)
const keysOf = (body: { sends: { dedupe_key: string }[] }) => body.sends.map((send) => send.dedupe_key)

const message = { to: 'ada@example.com', from_email: 'billing@example.com', subject: 'Your receipt', text_body: 'Thank you' }

const eventId = await insertEvent(pool, 'evt_roles')
await insertSend(pool, 'roles:1', { state: 'sent' })

describe('who may do what', () => {
  const calls = [
    ['get', '/v1/sends', { reader: 200, operator: 200, sender: 403 }],
    ['get', '/v1/sends/roles:1', { reader: 200, operator: 200, sender: 200 }],
    ['post', '/v1/sends', { reader: 403, operator: 400, sender: 400 }],
    ['get', '/v1/events', { reader: 200, operator: 200, sender: 403 }],
    ['get', `/v1/events/${eventId}`, { reader: 200, operator: 200, sender: 403 }],
    ['get', `/v1/events/${eventId}/body`, { reader: 200, operator: 200, sender: 403 }],
    ['post', `/v1/events/${eventId}/replay`, { reader: 403, operator: 202, sender: 403 }],
    ['get', '/v1/sources', { reader: 200, operator: 200, sender: 403 }],
  ] as const

  test.each(calls)('%s %s answers each role as the contract says, and nobody without a token', async (method, path, expected) => {
    const statuses: Record<string, number> = {}
    for (const by of ['reader', 'operator', 'sender'] as const) {
      const { status } = await supertest(app)[method](path).set('authorization', `Bearer ${tokens[by]}`)
      statuses[by] = status
    }
    const stranger = await supertest(app)[method](path)

    expect(statuses).toEqual(expected)
    expect(stranger.status).toBe(401)
    expect(stranger.headers['www-authenticate']).toMatch(/^Bearer/)
    expect(stranger.headers['content-type']).toMatch(/^application\/problem\+json/)
    expect(stranger.body).toMatchObject({ code: 'unauthorized', status: 401 })
  })

  test.each(['Bearer', 'Bearer och_wrong', 'Basic b2NoX3dyb25n', 'Bearer a b', `Bearer ${'x'.repeat(5_000)}`])(
    '%.20s is no way in',
    async (authorization) => {
      const { status, body } = await supertest(app).get('/v1/sends').set('authorization', authorization)

      expect({ status, code: body.code }).toEqual({ status: 401, code: 'unauthorized' })
    },
  )

  test('a revoked token is refused from the next request on', async () => {
    const token = await createToken(pool, { name: 'leaver', role: 'reader' })
    const before = await supertest(app).get('/v1/sends').set('authorization', `Bearer ${token}`)

    await pool.query(`update api_tokens set revoked_at = now() where name = 'leaver'`)

    const after = await supertest(app).get('/v1/sends').set('authorization', `Bearer ${token}`)
    expect([before.status, after.status]).toEqual([200, 401])
  })

  test('too many wrong tokens are answered 429 with a time to wait, while a good one from there still gets in', async () => {
    const own = supertest(newApp())
    const statuses: number[] = []
    for (let count = 0; count < 101; count += 1) {
      const { status } = await own.get('/v1/sends').set('authorization', 'Bearer och_guess')
      statuses.push(status)
    }

    const limited = await own.get('/v1/sends').set('authorization', 'Bearer och_guess')
    const good = await own.get('/v1/sends').set('authorization', `Bearer ${tokens.reader}`)

    expect(new Set(statuses.slice(0, 100))).toEqual(new Set([401]))
    expect(limited.status).toBe(429)
    expect(limited.body).toMatchObject({ code: 'rate_limited' })
    expect(Number(limited.headers['retry-after'])).toBeGreaterThan(0)
    expect(good.status).toBe(200)
  })
})

describe('paths and methods', () => {
  test('C-67 every answer is uncached and not to be sniffed', async () => {
    for (const path of ['/v1/sends', '/v1/nothing']) {
      const { headers } = await get(path)
      expect(headers).toMatchObject({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' })
      expect(headers['content-type']).toMatch(/^application\/(problem\+)?json/)
    }
  })

  test.each(['/v1', '/v1/nothing', '/v1/sends/', '/v1/sends/a/b', '/v1/events/1/nothing'])('%s is not found', async (path) => {
    const { status, body } = await get(path)

    expect({ status, code: body.code }).toEqual({ status: 404, code: 'not_found' })
  })

  test('a method that a path does not have is 405 with those that it has', async () => {
    const calls = [
      ['delete', '/v1/sends', 'GET, HEAD, POST'],
      ['put', '/v1/sends/roles:1', 'GET, HEAD'],
      ['post', '/v1/events', 'GET, HEAD'],
      ['get', '/v1/events/1/replay', 'POST'],
    ] as const
    for (const [method, path, allow] of calls) {
      const { status, headers, body } = await supertest(app)[method](path).set('authorization', `Bearer ${tokens.operator}`)
      expect({ status, allow: headers.allow, code: body.code }).toEqual({ status: 405, allow, code: 'method_not_allowed' })
    }
  })

  test('a path that is no valid percent-encoding is the caller’s mistake', async () => {
    const { status, body } = await get('/v1/sends/%E0%A4%A')

    expect({ status, code: body.code }).toEqual({ status: 400, code: 'invalid_request' })
  })

  test.each([
    'limit=0',
    'limit=201',
    'limit=ten',
    'status=gone',
    'since=yesterday',
    'cursor=abc',
    // A day that no calendar has, and a year that PostgreSQL doesn't know.
    `cursor=${Buffer.from('["2026-02-31T00:00:00.000000Z","a"]').toString('base64url')}`,
    `cursor=${Buffer.from('["0000-01-01T00:00:00.000000Z","a"]').toString('base64url')}`,
    'nonsense=1',
    `cursor=${Buffer.from('["2026-11-29T00:00:00.000000Z","\\ud800"]').toString('base64url')}`,
    'q=%00',
    'q=',
    'limit=1&limit=2',
  ])('a list asked for with ?%s is refused without repeating the value', async (query) => {
    const { status, body } = await get(`/v1/sends?${query}`)

    expect({ status, code: body.code }).toEqual({ status: 400, code: 'invalid_request' })
    expect(body.errors).toEqual([{ path: query.split('=')[0], message: expect.any(String) }])
  })
})

describe('a statement that takes too long', () => {
  /** Reads that the database ends, as its statement timeout does. */
  const slowApp = (reads: object) =>
    express()
      .use(holdToDeclarations())
      .use(opsRoutes({ ...depsOf(), reads: reads as never }))
      .use(((error, _req, res, _next) => void res.status(500).json({ code: error.code })) satisfies express.ErrorRequestHandler)
  const slow = slowApp({ query: () => pool.query(`set local statement_timeout = 1; select pg_sleep(10)`) })

  test.each(['/v1/sends', '/v1/sends/a', '/v1/events', '/v1/events/1', '/v1/sources', '/v1/sending', '/v1/audit', '/v1/review'])(
    'I19 on %s is 503 with a way out',
    async (path) => {
      const { status, body } = await supertest(slow).get(path).set('authorization', `Bearer ${tokens.operator}`)

      expect([status, body.code]).toEqual([503, 'query_timeout'])
      expect(body.detail).toContain('narrow the time range')
    },
  )

  test('elsewhere is as it was: storage that does not answer', async () => {
    const stuck = express()
      .use(
        opsRoutes({
          ...depsOf(),
          replay: async () => {
            await pool.query(`set local statement_timeout = 1; select pg_sleep(10)`)
            throw new Error('not reached')
          },
        }),
      )
      .use(((error, _req, res, _next) => void res.status(500).json({ code: error.code })) satisfies express.ErrorRequestHandler)

    const { body } = await supertest(stuck).post('/v1/events/1/replay').set('authorization', `Bearer ${tokens.operator}`)

    expect(body.code).toBe('57014')
  })
})

describe('lists of sends', () => {
  test('pages hold each row once and in order, although new sends come in between', async () => {
    const at = new Date('2020-01-01T00:00:00Z')
    const keys = Array.from({ length: 7 }, (_, index) => `page:${index}`)
    for (const key of keys) await insertSend(pool, key, { queued_at: at, recipient: 'pages@example.com' })
    // Apart by less than a millisecond, which a JavaScript Date can't tell.
    await pool.query(
      `update email_sends set queued_at = queued_at + interval '1 microsecond' where dedupe_key in ('page:0', 'page:1')`,
    )

    const seen: string[] = []
    let cursor: string | null = null
    do {
      const path = `/v1/sends?recipient=pages@example.com&limit=2${cursor === null ? '' : `&cursor=${cursor}`}`
      const { body } = (await get(path)) as { body: { sends: { dedupe_key: string }[]; next_cursor: string | null } }
      seen.push(...keysOf(body))
      cursor = body.next_cursor
      await insertSend(pool, `page:new:${seen.length}`, { recipient: 'pages@example.com' })
    } while (cursor !== null)

    expect(seen).toEqual(['page:1', 'page:0', 'page:6', 'page:5', 'page:4', 'page:3', 'page:2'])
  })

  test('a page that holds just the last row says that there is no next one', async () => {
    await insertSend(pool, 'single:1', { recipient: 'single@example.com' })

    const { body } = await get('/v1/sends?recipient=single@example.com&limit=1')

    expect({ keys: keysOf(body), next: body.next_cursor }).toEqual({ keys: ['single:1'], next: null })
  })

  test('one search finds by key, part of a key, message id, event id and recipient, and takes % and _ as they are', async () => {
    await insertSend(pool, 'invoice:INV-1042:paid', { state: 'sent', message_id: 'm_93c', recipient: 'Find.Me@example.com' })
    await insertSend(pool, 'rebate:100%:a_b')
    await insertSend(pool, 'rebate:100x:acb')
    await insertSend(pool, 'zq:1')
    await insertSend(pool, 'x:zq:1')
    await insertFollowUp(pool, await insertEvent(pool, 'evt_find'), 'invoice:INV-1042:paid')
    const report = await insertEvent(pool, 'm_93c:delivered', { source: 'inboxili' })
    await insertReport(pool, report, { attempt: await insertAttempt(pool, 'invoice:INV-1042:paid', { message_id: 'm_93c' }) })

    const found = async (q: string) => keysOf((await get('/v1/sends').query({ q })).body).sort()

    for (const q of ['invoice:INV-1042:paid', 'INV-1042', 'm_93c', 'evt_find', 'm_93c:delivered', 'find.me@EXAMPLE.com']) {
      expect(await found(q), q).toEqual(['invoice:INV-1042:paid'])
    }
    expect(await found('100%')).toEqual(['rebate:100%:a_b'])
    expect(await found(':a_b')).toEqual(['rebate:100%:a_b'])
    expect(await found('zq')).toEqual(['zq:1'])
    expect(await found('zq:')).toEqual(['x:zq:1', 'zq:1'])
    expect(await found("'; drop table email_sends; --")).toEqual([])
  })

  test('filters by status, recipient and time work together', async () => {
    const recipient = 'filters@example.com'
    await insertSend(pool, 'filter:review', { state: 'needs_review', recipient, queued_at: new Date(Date.now() - 3_600_000) })
    await insertSend(pool, 'filter:bounced', { state: 'sent', recipient, bounced_at: new Date(), bounce_kind: 'hard' })
    await insertSend(pool, 'filter:old', { state: 'needs_review', recipient, queued_at: new Date('2020-05-01T00:00:00Z') })

    const found = async (query: string) => keysOf((await get(`/v1/sends?recipient=FILTERS@example.com&${query}`)).body)

    expect(await found('status=needs_review')).toEqual(['filter:review', 'filter:old'])
    expect(await found('status=needs_review,bounced&since=24h')).toEqual(['filter:bounced', 'filter:review'])
    expect(await found('status=sent')).toEqual([])
    expect(await found('since=30m')).toEqual(['filter:bounced'])
    expect(await found('since=2020-05-01T01:00:00%2B02:00')).toHaveLength(3)
    expect(await found('since=2020-05-01T00:00:01Z')).toHaveLength(2)
  })

  test('I17 a row holds neither the email’s text nor what guards the send', async () => {
    await insertSend(pool, 'secret:1', { state: 'claimed', recipient: 'secret@example.com' })

    const { body } = await get('/v1/sends?recipient=secret@example.com')

    expect(body.sends[0]).toMatchObject({
      dedupe_key: 'secret:1',
      status: 'claimed',
      needs_review: false,
      version: 1,
      subject: 'Your receipt',
    })
    expect(Object.keys(body.sends[0])).not.toEqual(expect.arrayContaining(['message']))
    expect(JSON.stringify(body)).not.toMatch(/secret text|token":|sha256/)
  })
})

describe('one send', () => {
  test.each(['100%/off?#:x', 'gruß:🎉:1', 'a%2Fb', 'C:\\x "quoted"', '..'])('is found by a key as odd as %s', async (key) => {
    await insertSend(pool, key)

    // A URL would take the dots for a step up, even encoded; the raw path is what a careful client sends.
    const { status, body } = key === '..' ? await rawGet('/v1/sends/%2E%2E') : await get(`/v1/sends/${encodeURIComponent(key)}`)

    expect({ status, key: body.dedupe_key }).toEqual({ status: 200, key })
  })

  test('comes with its attempts, events, reports, evidence and a timeline, and without any claim token', async () => {
    const key = 'whole:1'
    const at = (second: number) => new Date(Date.UTC(2026, 10, 29, 14, 2, second))
    await insertSend(pool, key, {
      state: 'sent',
      message_id: 'm_w',
      queued_at: at(1),
      completed_at: at(30),
      claim_token: crypto.randomUUID(),
    })
    const attempt = await insertAttempt(pool, key, {
      outcome: 'unknown',
      claimed_at: at(2),
      called_at: at(3),
      ended_at: at(18),
      error: 'no answer',
      message_id: 'm_w',
    })
    const event = await insertEvent(pool, 'evt_whole', { received_at: at(0), redeliveries: 2 })
    await insertFollowUp(pool, event, key, { at: at(1) })
    const report = await insertEvent(pool, 'm_w:delivered', { source: 'inboxili', type: 'delivered', received_at: at(25) })
    await insertReport(pool, report, { attempt, message_id: 'm_w', occurred_at: at(24) })
    await insertSettlement(pool, key, attempt, { event: report, at: at(30) })

    const { body } = await get(`/v1/sends/${key}`)

    expect(body).toMatchObject({
      dedupe_key: key,
      queued_at: '2026-11-29T14:02:01.000Z',
      message: { subject: 'Your receipt' },
      attempts: [{ number: 1, outcome: 'unknown', error: 'no answer' }],
      events: [{ id: event, event_id: 'evt_whole', rule: 'receipts', outcome: 'queued' }],
      reports: [{ event: report, kind: 'delivered', message_id: 'm_w', attempt: 1 }],
      settlements: [{ grade: 'A', attempt: 1, event: report, candidates: [{ dedupe_key: key, attempt: 1 }] }],
    })
    expect(body.timeline.map(({ at, kind, text }: Record<string, string>) => [at?.slice(17, 19), kind, text])).toEqual([
      [
        '00',
        'received',
        expect.stringMatching(/^Event received: stripe invoice.paid evt_whole, \d+ bytes, sha256 [0-9a-f]{4}…[0-9a-f]{4}/),
      ],
      ['00', 'dedupe', 'Decision: New: first time we see evt_whole (2 redeliveries later: same bytes)'],
      ['01', 'follow_up', 'Follow-up: rule "receipts" for evt_whole → this send'],
      ['01', 'queued', 'Asked for: by token:test, policy claim'],
      ['02', 'claimed', 'Claim: key was free → claimed for call 1, policy claim'],
      ['03', 'call', 'Call 1: POST /api/v1/transactional/send'],
      ['18', 'answer', 'Call 1: no answer → unknown, m_w'],
      ['25', 'report', 'Report: delivered, m_w, of call 1, by its own ID (grade A), m_w:delivered'],
      ['30', 'settled', expect.stringMatching(/^Settled: .* → sent, by report m_w:delivered, grade A, rule v1; 1 candidate$/)],
    ])
    const { rows } = await pool.query('select claim_token from email_sends where dedupe_key = $1', [key])
    expect(JSON.stringify(body)).not.toContain(attempt)
    expect(JSON.stringify(body)).not.toContain(rows[0].claim_token)
  })

  test('C-55 that was accepted without a message id is sent, with null for the id', async () => {
    await insertSend(pool, 'null:1', { state: 'sent', message_id: null })

    const { body } = await get('/v1/sends/null:1')

    expect(body).toMatchObject({ status: 'sent', state: 'sent', message_id: null, needs_review: false })
  })

  test('that nobody asked for is 404', async () => {
    for (const key of ['nobody', '%00', 'x'.repeat(2_000)]) {
      const { status, body } = await get(`/v1/sends/${key}`)
      expect({ status, code: body.code }).toEqual({ status: 404, code: 'not_found' })
    }
  })
})

describe('events', () => {
  test('are listed newest first, filtered and in pages that new events do not disturb', async () => {
    const ids: string[] = []
    for (const name of ['evt_l1', 'evt_l2', 'evt_l3']) ids.push(await insertEvent(pool, name, { source: 'listed' }))
    await insertEvent(pool, 'evt_failed', {
      source: 'listed',
      type: 'other',
      status: 'failed',
      processed_at: null,
      error: 'key_taken',
    })

    const first = await get('/v1/events?source=listed&type=invoice.paid&limit=2')
    await insertEvent(pool, 'evt_l4', { source: 'listed' })
    const second = await get(`/v1/events?source=listed&type=invoice.paid&limit=2&cursor=${first.body.next_cursor}`)

    const idsOf = (body: { events: { id: string }[] }) => body.events.map((event) => event.id)
    expect(idsOf(first.body)).toEqual([ids[2], ids[1]])
    expect({ ids: idsOf(second.body), next: second.body.next_cursor }).toEqual({ ids: [ids[0]], next: null })
    expect((await get('/v1/events?status=failed,quarantined&source=listed')).body.events).toMatchObject([
      { event_id: 'evt_failed', error: 'key_taken' },
    ])
    expect((await get('/v1/events?source=listed&event_id=evt_l2')).body.events).toMatchObject([{ id: ids[1] }])
    expect((await get('/v1/events?source=listed&since=2999-01-01')).body.events).toEqual([])
    expect((await get('/v1/events?recipient=x')).status).toBe(400)
  })

  test('C-35 one event shows its sends, its redeliveries and what came under its id with other content', async () => {
    const id = await insertEvent(pool, 'evt_one', { redeliveries: 3 })
    await insertSend(pool, 'caused:1', { state: 'needs_review' })
    await insertFollowUp(pool, id, 'caused:1')
    await pool.query(`insert into webhook_conflicts (event, body, body_sha256, times) values ($1, 'other', '\\xabcd', 2)`, [id])

    const { body } = await get(`/v1/events/${id}`)

    expect(body).toMatchObject({
      id,
      event_id: 'evt_one',
      redeliveries: 3,
      body_sha256: 'c92bb43fc4a9da23126df4e4af97b4eb8f08b6330b69aecb90e67fb7ac4ea4d1',
      body_bytes: 16,
      sends: [{ dedupe_key: 'caused:1', status: 'needs_review', rule: 'receipts', outcome: 'queued' }],
      conflicts: [{ body_sha256: 'abcd', times: 2, received_at: expect.stringMatching(/Z$/) }],
    })
  })

  test('I2 the body comes back byte for byte, as an attachment that no browser opens', async () => {
    const bytes = Buffer.from([0, 255, 60, 115, 99, 114, 105, 112, 116, 62, 13, 10])
    const id = await insertEvent(pool, 'evt_bytes', { body: bytes })

    const { headers, body } = await get(`/v1/events/${id}/body`).responseType('blob')

    expect(body).toEqual(bytes)
    expect(headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-disposition': `attachment; filename="event-${id}.bin"`,
      'x-content-type-options': 'nosniff',
    })
  })

  test('an event of a POST with several finds its bytes where they lie once', async () => {
    const id = await insertEvent(pool, 'evt_shared', { body: null, body_sha256: Buffer.from('beef', 'hex') })
    await pool.query(`insert into webhook_bodies (sha256, body) values ('\\xbeef', 'shared bytes')`)

    const { body } = await get(`/v1/events/${id}/body`).responseType('blob')

    expect(body.toString()).toBe('shared bytes')
  })

  test('an emptied body is gone, even while another event still keeps the shared bytes', async () => {
    const id = await insertEvent(pool, 'evt_emptied', {
      body: null,
      body_emptied_at: new Date(),
      body_sha256: Buffer.from('f00d', 'hex'),
    })
    await pool.query(`insert into webhook_bodies (sha256, body) values ('\\xf00d', 'shared bytes')`)

    const { status, body } = await get(`/v1/events/${id}/body`)

    expect({ status, code: body.code }).toEqual({ status: 410, code: 'body_emptied' })
    expect((await get(`/v1/events/${id}`)).body).toMatchObject({ id, body_bytes: null })
  })

  test.each(['0', '999999999', '9223372036854775808', '99999999999999999999999', 'evt_1', '-1', '1e3', '%00'])(
    'there is none under the id %s',
    async (id) => {
      for (const path of [`/v1/events/${id}`, `/v1/events/${id}/body`]) {
        const { status, body } = await get(path)
        expect({ status, code: body.code }).toEqual({ status: 404, code: 'not_found' })
      }
    },
  )
})

describe('replaying', () => {
  test.each([
    [{ outcome: 'queued' }, 202, undefined],
    [{ outcome: 'read', events: [{ id: 'evt_new', type: null, status: 'accepted' }] }, 202, undefined],
    [{ outcome: 'still_unusable' }, 202, undefined],
    [{ outcome: 'pending' }, 409, 'already_running'],
    [{ outcome: 'unknown_source' }, 409, 'unknown_source'],
    [{ outcome: 'emptied' }, 410, 'body_emptied'],
    [{ outcome: 'not_found' }, 404, 'not_found'],
  ] as [Replayed, number, string | undefined][])('that ends as %j is told by its status', async (outcome, status, code) => {
    replayed = outcome

    const answer = await post('/v1/events/12/replay', {})

    expect(answer.status).toBe(status)
    expect(answer.body).toMatchObject(code === undefined ? outcome : { code })
  })

  test('I12 is done in the name of the token that asked for it', async () => {
    replayed = { outcome: 'queued' }
    replays.length = 0

    await post('/v1/events/12/replay', {})

    expect(replays).toEqual([{ id: '12', actor: 'token:mia', via: 'api' }])
  })
})

describe('asking for a send', () => {
  const jobsOf = async (key: string) =>
    (await pool.query(`select count(*)::int as jobs from pgboss.job where data ->> 'key' = $1`, [key])).rows[0].jobs

  test('queues it with its job and answers 202 with the send', async () => {
    const { status, body } = await post('/v1/sends', { dedupe_key: 'ask:1', message }, 'sender')

    expect(status).toBe(202)
    expect(body).toMatchObject({ dedupe_key: 'ask:1', status: 'queued', policy: 'claim', requested_by: 'token:shop', message })
    expect(await jobsOf('ask:1')).toBe(1)
  })

  test('C-34 twenty at once for the same key are one send: one is told 202, the others 200', async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post('/v1/sends', { dedupe_key: 'race:1', message }, 'sender')),
    )

    const statuses = answers.map((answer) => answer.status).sort()
    expect(statuses).toEqual([...Array.from({ length: 19 }, () => 200), 202])
    expect(new Set(answers.map((answer) => answer.body.dedupe_key))).toEqual(new Set(['race:1']))
    const { rows } = await pool.query(`select version from email_sends where dedupe_key = 'race:1'`)
    expect(rows).toEqual([{ version: 1 }])
    expect(await jobsOf('race:1')).toBe(1)
  })

  test.each(['claimed', 'sending', 'sent', 'needs_review', 'abandoned'])(
    'the same message again changes nothing when the send is %s',
    async (state) => {
      const key = `again:${state}`
      await insertSend(pool, key, { state, message: JSON.stringify(message) })

      // The order of fields is no difference.
      const { status, body } = await post('/v1/sends', {
        message: Object.fromEntries(Object.entries(message).reverse()),
        dedupe_key: key,
      })

      expect(status).toBe(200)
      expect(body).toMatchObject({ dedupe_key: key, state, version: 1 })
      expect(await jobsOf(key)).toBe(0)
    },
  )

  test('another message under a held key is a conflict that names the fields and changes nothing', async () => {
    await post('/v1/sends', { dedupe_key: 'conflict:1', message })

    const other = { ...message, to: 'bob@example.com', html_body: '<p>Thank you</p>' }
    const { status, body, headers } = await post('/v1/sends', { dedupe_key: 'conflict:1', message: other })

    expect(status).toBe(409)
    expect(headers['content-type']).toMatch(/^application\/problem\+json/)
    expect(body).toMatchObject({ code: 'key_conflict', fields: ['html_body', 'to'], send_status: 'queued' })
    expect(JSON.stringify(body)).not.toContain('example.com')
    expect((await get('/v1/sends/conflict:1')).body).toMatchObject({ recipient: 'ada@example.com', version: 1 })
  })

  test('I8 a rejected send is queued again, with the new message', async () => {
    await insertSend(pool, 'rejected:1', { state: 'rejected', message: JSON.stringify(message), last_error: '422 send_failed' })

    const { status, body } = await post('/v1/sends', {
      dedupe_key: 'rejected:1',
      message: { ...message, to: 'right@example.com' },
    })

    expect(status).toBe(202)
    expect(body).toMatchObject({
      state: 'queued',
      recipient: 'right@example.com',
      last_error: null,
      version: 2,
      message: { to: 'right@example.com' },
    })
    expect(await jobsOf('rejected:1')).toBe(1)
  })

  test('what is wrong with a request is told by place, without its values', async () => {
    const { status, body } = await post('/v1/sends', {
      dedupe_key: '',
      policy: 'unheard-of',
      extra: 'hunter2',
      message: { ...message, to: 'hunter2', reply_to: 'hunter2' },
    })

    expect({ status, code: body.code }).toEqual({ status: 400, code: 'invalid_request' })
    expect(body.errors.map((error: { path: string }) => error.path).sort()).toEqual([
      'dedupe_key',
      'extra',
      'message.reply_to',
      'message.to',
      'policy',
    ])
    expect(JSON.stringify(body)).not.toMatch(/hunter2|unheard-of/)
  })

  test.each(['a\u0000b', 'a\nb', '\ud800', '   ', 'x'.repeat(513), 7, null])('%j is no key', async (dedupe_key) => {
    const { status, body } = await post('/v1/sends', { dedupe_key, message })

    expect(status).toBe(400)
    expect(body.errors).toEqual([{ path: 'dedupe_key', message: expect.any(String) }])
  })

  test('C-28 a message nested thousands of levels deep is refused', async () => {
    const deep = `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`
    const text = JSON.stringify({ dedupe_key: 'deep:1', message: { ...message, template_data: 0 } }).replace(
      '"template_data":0',
      `"template_data":${deep}`,
    )

    const { status, body } = await postText(text)

    expect({ status, code: body.code }).toEqual({ status: 400, code: 'invalid_request' })
  })

  test('a body that is no JSON, no object or too large has an answer of its own', async () => {
    const answers = [
      await postText('{"dedupe_key": "secret'),
      await postText('"text"'),
      await postText('[]'),
      await postText('{}', 'text/plain'),
      await postText(JSON.stringify({ dedupe_key: 'large:1', message: { ...message, text_body: 'x'.repeat(1_600_000) } })),
    ]

    expect(answers.map(({ status, body }) => [status, body.code])).toEqual([
      [400, 'invalid_json'],
      [400, 'invalid_request'],
      [400, 'invalid_request'],
      [400, 'invalid_request'],
      [413, 'body_too_large'],
    ])
    expect(JSON.stringify(answers[0]?.body)).not.toContain('secret')
  })
})

describe('asking under a policy', () => {
  test('unguarded: each request is a send under a key of its own, until the recipient has had enough', async () => {
    const body = { dedupe_key: 'otp:login', policy: 'unguarded', message: { ...message, to: 'otp@example.com' } }
    const answers = await Promise.all(Array.from({ length: 6 }, () => post('/v1/sends', body, 'sender')))

    expect(answers.map((it) => it.status).sort()).toEqual([202, 202, 202, 202, 202, 429])
    const keys = answers.flatMap((it) => (it.status === 202 ? [it.body.dedupe_key] : []))
    expect(new Set(keys).size).toBe(5)
    for (const key of keys) expect(key).toMatch(/^otp:login:[0-9a-f-]{36}$/)
    expect(answers.find((it) => it.status === 429)?.body).toMatchObject({ code: 'rate_limited' })
  })

  test('timestamp: another key of the kind is answered with the send that holds the mark', async () => {
    const ask = (key: string) =>
      post('/v1/sends', { dedupe_key: key, policy: 'timestamp', message: { ...message, to: 'new@example.com' } }, 'sender')
    const first = await ask('hello:acme:1')

    const second = await ask('hello:acme:2')

    expect([first.status, second.status, second.body.dedupe_key]).toEqual([202, 200, 'hello:acme:1'])
  })

  test('per_period: a key without a period is refused, and says why', async () => {
    const { status, body } = await post('/v1/sends', { dedupe_key: 'failed:sub_1', policy: 'per_period', message })

    expect([status, body.errors]).toEqual([
      400,
      [{ path: 'dedupe_key', message: 'policy per_period needs a period as its last part' }],
    ])
  })
})

describe('waiting for a send', () => {
  test('ends with 200 once the send is closed', async () => {
    const waiting = post('/v1/sends', { dedupe_key: 'wait:1', message })
      .set('prefer', 'respond-async, wait=20')
      .then((answer) => answer)
    await expect.poll(async () => (await pool.query(`select from email_sends where dedupe_key = 'wait:1'`)).rowCount).toBe(1)
    for (const state of ['claimed', 'sending', 'sent']) {
      await pool.query(
        `update email_sends set state = $1, claim_token = gen_random_uuid(), claimed_at = now(), completed_at = now() where dedupe_key = 'wait:1'`,
        [state],
      )
    }

    const { status, body, headers } = await waiting

    expect(status).toBe(200)
    expect(body).toMatchObject({ dedupe_key: 'wait:1', status: 'sent' })
    expect(headers['preference-applied']).toBe('wait=20')
  })

  test('ends with 202 when the time is over, for the second caller too', async () => {
    const ask = () => post('/v1/sends', { dedupe_key: 'wait:2', message }).set('prefer', 'wait=1')
    const started = performance.now()

    const [first, second] = await Promise.all([ask(), ask()])

    expect([first.status, second.status]).toEqual([202, 202])
    expect(first.body).toMatchObject({ status: 'queued' })
    expect(performance.now() - started).toBeGreaterThanOrEqual(900)
  })

  test('is not done for a send that is closed already, nor for a preference that can’t be read', async () => {
    await insertSend(pool, 'wait:3', { state: 'needs_review', message: JSON.stringify(message) })

    const closed = await post('/v1/sends', { dedupe_key: 'wait:3', message }).set('prefer', 'wait=30')
    const unread = await post('/v1/sends', { dedupe_key: 'wait:4', message }).set('prefer', 'wait=soon')

    expect([closed.status, unread.status]).toEqual([200, 202])
  })

  test('tells nothing to a token that was revoked meanwhile', async () => {
    const token = await createToken(pool, { name: 'leaving', role: 'sender' })
    const waiting = supertest(app)
      .post('/v1/sends')
      .set({ authorization: `Bearer ${token}`, prefer: 'wait=20' })
      .send({ dedupe_key: 'wait:revoked', message })
      .then((answer) => answer)
    await expect
      .poll(async () => (await pool.query(`select from email_sends where dedupe_key = 'wait:revoked'`)).rowCount)
      .toBe(1)

    await pool.query(`update api_tokens set revoked_at = now() where name = 'leaving'`)
    await pool.query(`update email_sends set state = 'sent', completed_at = now() where dedupe_key = 'wait:revoked'`)
    const { status, headers, body } = await waiting

    expect([status, body.code]).toEqual([401, 'unauthorized'])
    expect(headers['www-authenticate']).toBe('Bearer realm="oncehook"')
    expect(JSON.stringify(body)).not.toContain('ada@example.com')
  })

  test('C-47 holds no connection: more callers wait than the pool has connections, and others are answered', async () => {
    const waiting = Array.from({ length: 40 }, (_, index) =>
      post('/v1/sends', { dedupe_key: `many:${index}`, message })
        .set('prefer', 'wait=20')
        .then((answer) => answer.status),
    )
    await expect.poll(async () => (await pool.query(`select from email_sends where dedupe_key like 'many:%'`)).rowCount).toBe(40)

    const other = await get('/v1/sends/many:0')
    await pool.query(`update email_sends set state = 'sent', completed_at = now() where dedupe_key like 'many:%'`)

    expect(other.status).toBe(200)
    expect(new Set(await Promise.all(waiting))).toEqual(new Set([200]))
  })

  /** Asks for a send with `Prefer: wait=30`; says when the client has gone, and when the answer was given. */
  async function askAndGo(dedupe_key: string) {
    const gone = Promise.withResolvers<void>()
    const answered = Promise.withResolvers<number>()
    const watched = express()
      .use((_req, res, next) => {
        const json = res.json.bind(res)
        res.json = (body) => {
          answered.resolve(performance.now())
          return json(body)
        }
        res.once('close', gone.resolve)
        next()
      })
      .use(newApp())
    const server = createServer(watched).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const headers = { authorization: `Bearer ${tokens.sender}`, 'content-type': 'application/json', prefer: 'wait=30' }
    const { port } = server.address() as AddressInfo
    const req = httpRequest({ port, host: '127.0.0.1', path: '/v1/sends', method: 'POST', headers })
    req.on('error', () => undefined)
    req.end(JSON.stringify({ dedupe_key, message }))
    return { req, gone: gone.promise, answered: answered.promise, server }
  }

  test('stops when the client goes away', async () => {
    const { req, answered, server } = await askAndGo('gone:1')
    await expect.poll(async () => (await pool.query(`select from email_sends where dedupe_key = 'gone:1'`)).rowCount).toBe(1)

    const left = performance.now()
    req.destroy()

    expect((await answered) - left).toBeLessThan(10_000)
    server.close()
  })

  test('does not begin when the client has gone before the send is stored', async () => {
    const holder = await pool.connect()
    await holder.query('begin')
    await insertSend(holder, 'gone:2')
    const { req, gone, answered, server } = await askAndGo('gone:2')
    await untilWaiting(pool)
    req.destroy()
    await gone

    const left = performance.now()
    await holder.query('rollback')
    holder.release()

    expect((await answered) - left).toBeLessThan(10_000)
    server.close()
  })
})

function postText(text: string, type = 'application/json') {
  return supertest(app).post('/v1/sends').set('authorization', `Bearer ${tokens.operator}`).set('content-type', type).send(text)
}

/** A request whose path nobody tidies up on the way. */
async function rawGet(path: string): Promise<{ status: number; body: { dedupe_key?: string } }> {
  const server = createServer(app).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const req = httpRequest({ port, host: '127.0.0.1', path, headers: { authorization: `Bearer ${tokens.reader}` } }).end()
  const [res] = await once(req, 'response')
  const body = JSON.parse(Buffer.concat(await res.toArray()).toString())
  server.close()
  return { status: res.statusCode, body }
}
