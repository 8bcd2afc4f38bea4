import { describe, expect, test } from 'vitest'
import { testApi } from './support/api.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertFollowUp, insertSend } from './support/ops-rows.ts'

const database = await testDatabase()
const { pool } = database
const NOW = new Date()
const api = await testApi(database, { now: () => NOW })
const { get } = api

describe('GET /v1/search', () => {
  test('finds the one send or event that a text names', async () => {
    await insertSend(pool, 'invoice:INV-1042:paid', { recipient: 'ada@example.com' })
    const id = await insertEvent(pool, 'evt_named')

    const [send, event] = [await get('/v1/search?q=INV-1042'), await get('/v1/search?q=%20evt_named%20')]

    expect([send.status, send.body]).toEqual([200, { kind: 'send', dedupe_key: 'invoice:INV-1042:paid' }])
    expect([event.status, event.body]).toEqual([200, { kind: 'event', id }])
  })

  test('says that there are several, for the lists', async () => {
    await insertSend(pool, 'order:77:a')
    await insertSend(pool, 'order:77:b')
    await insertEvent(pool, 'evt_twice', { source: 'stripe' })
    await insertEvent(pool, 'evt_twice', { source: 'shop' })

    expect((await get('/v1/search?q=order:77')).body).toEqual({ kind: 'sends' })
    expect((await get('/v1/search?q=evt_twice')).body).toEqual({ kind: 'events' })
  })

  test('says where the chain from event to send broke', async () => {
    const event = await insertEvent(pool, 'evt_broken', { object_ref: 'in_broken', status: 'failed', error: 'no address' })
    await insertFollowUp(pool, event, null, { rule: 'receipt', outcome: 'failed', error: 'no address' })

    const [broken, unknown] = [await get('/v1/search?q=in_broken'), await get('/v1/search?q=nobody-knows-it')]

    expect(broken.body).toMatchObject({
      kind: 'nothing',
      broke: 'failed',
      text: 'One event names it. The follow-up failed: no address',
      events: [{ id: event, follow_ups: [{ rule: 'receipt', outcome: 'failed', dedupe_key: null, send_status: null }] }],
    })
    expect(unknown.body).toEqual({
      kind: 'nothing',
      broke: 'no_event',
      text: 'No event that is stored names it.',
      searched: ['keys of sends', 'recipients', 'message IDs', 'event IDs', 'what events refer to'],
      events: [],
    })
  })

  test('looks through the bodies of the last day', async () => {
    const id = await insertEvent(pool, 'evt_body', { body: Buffer.from('{"note":"blue moon"}') })
    await insertEvent(pool, 'evt_old_body', {
      body: Buffer.from('{"note":"blue moon"}'),
      received_at: new Date(NOW.getTime() - 25 * 3_600_000),
    })

    const { body } = await get('/v1/search?q=blue%20moon&bodies=1')

    expect(body).toMatchObject({ kind: 'bodies', events: [{ id }], is_complete: true })
    expect(body.since).toBe(new Date(NOW.getTime() - 24 * 3_600_000).toISOString())
  })

  test.each(['', 'q=', 'q=%20', 'q=a&bodies=yes', 'q=a&limit=5', 'q=%00'])('takes no %s', async (query) => {
    const { status, body } = await get(`/v1/search?${query}`)

    expect([status, body.code]).toEqual([400, 'invalid_request'])
  })

  test('is for who may read lists', async () => {
    expect((await get('/v1/search?q=a', 'sender')).status).toBe(403)
  })
})

describe('GET /v1/events/ID/conflicts/ID/body', () => {
  test('has the very bytes, as an attachment, of a conflict of this event only', async () => {
    const bytes = Buffer.from([0, 255, 10, 123])
    const [event, other] = [await insertEvent(pool, 'evt_conflict'), await insertEvent(pool, 'evt_other')]
    const { rows } = await pool.query<{ id: string }>(
      `insert into webhook_conflicts (event, body, body_sha256) values ($1, $2, 'x') returning id`,
      [event, bytes],
    )
    const id = rows[0]?.id

    const { status, headers, body } = await get(`/v1/events/${event}/conflicts/${id}/body`).responseType('blob')
    const listed = await get(`/v1/events/${event}`)
    const missing = await Promise.all(
      [`${other}/conflicts/${id}`, `${event}/conflicts/999`, `${event}/conflicts/x`, `999/conflicts/${id}`].map((path) =>
        get(`/v1/events/${path}/body`),
      ),
    )

    expect([status, body]).toEqual([200, bytes])
    expect(headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-disposition': `attachment; filename="event-${event}-conflict-${id}.bin"`,
    })
    expect(listed.body.conflicts).toMatchObject([{ id }])
    expect(missing.map(({ status, body }) => [status, body.code])).toEqual(Array(4).fill([404, 'not_found']))
    expect((await get(`/v1/events/${event}/conflicts/${id}/body`, 'sender')).status).toBe(403)
  })
})

test('where personal data is hidden, a reader finds nobody by an address and gets no bytes, an operator does', async () => {
  const hiding = await testApi(database, {}, { ops: { hidePersonalData: true } })
  await insertSend(pool, 'hidden:1', { recipient: 'eve@example.com' })
  const event = await insertEvent(pool, 'evt_hidden')
  const { rows } = await pool.query<{ id: string }>(
    `insert into webhook_conflicts (event, body, body_sha256) values ($1, 'x', 'x') returning id`,
    [event],
  )
  const asked = (by: 'reader' | 'operator') =>
    Promise.all(
      ['/v1/search?q=eve@example.com', '/v1/search?q=eve&bodies=1', `/v1/events/${event}/conflicts/${rows[0]?.id}/body`].map(
        async (path) => (await hiding.get(path, by)).status,
      ),
    )

  expect(await asked('reader')).toEqual([400, 403, 403])
  expect(await asked('operator')).toEqual([200, 200, 200])
})

describe('GET /v1/runs', () => {
  test('has all of them once, newest first, page by page, those of one moment too', async () => {
    await pool.query('truncate runs')
    for (const [by, at] of [
      ['a', '2026-11-29T10:00:00.000001Z'],
      ['b', '2026-11-29T10:00:00.000002Z'],
      ['c', '2026-11-29T10:00:00.000002Z'],
      ['d', '2026-11-29T10:00:00.000002Z'],
      ['e', '2026-11-29T11:00:00Z'],
    ])
      await pool.query(
        `insert into runs (filter, events, created_by, created_at, expires_at) values ('{"source":"stripe"}', '{1,2}', $1, $2, $2)`,
        [by, at],
      )
    const seen: string[] = []
    const sizes: number[] = []

    for (let cursor = ''; ; ) {
      const { body } = await get(`/v1/runs?limit=2${cursor}`)
      seen.push(...body.runs.map((run: { created_by: string }) => run.created_by))
      sizes.push(body.runs.length)
      if (body.next_cursor === null) break
      cursor = `&cursor=${body.next_cursor}`
    }

    expect(sizes).toEqual([2, 2, 1])
    expect([seen[0], seen.slice(1, 4).sort(), seen[4]]).toEqual(['e', ['b', 'c', 'd'], 'a'])
    const { body } = await get('/v1/runs?limit=1')
    expect(body.runs).toMatchObject([{ state: 'planned', filter: { source: 'stripe' }, events: 2, created_by: 'e' }])
  })

  test('refuses a cursor that is none of its own', async () => {
    for (const place of ['["x","y"]', '["2026-11-29T10:00:00.000001Z","1"]', '[]']) {
      const { status, body } = await get(`/v1/runs?cursor=${Buffer.from(place).toString('base64url')}`)
      expect([status, body.errors]).toEqual([400, [{ path: 'cursor', message: 'is not a cursor of this list' }]])
    }
  })
})
