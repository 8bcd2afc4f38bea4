import { describe, expect, test } from 'vitest'
import { testApi } from './support/api.ts'
import { testDatabase } from './support/database.ts'
import { declaredRoutes } from './support/declared.ts'
import { insertEvent, insertSend } from './support/ops-rows.ts'

const database = await testDatabase()
const { pool } = database
const replays: string[] = []
const api = await testApi(database, {
  replay: async (id) => {
    replays.push(id)
    return { outcome: 'queued' }
  },
})
const { get, post, call } = api

const message = { to: 'ada@example.com', from_email: 'billing@example.com', template_id: 't' }
const ask = (template_data: unknown, dedupe_key = 'data:1') =>
  post('/v1/sends', { dedupe_key, message: { ...message, template_data } })
/** The same with the data as a text, which may say what no value of JavaScript can. */
const askText = (data: string, dedupe_key = 'data:1') =>
  api
    .call('post', '/v1/sends')
    .set('content-type', 'application/json')
    .send(
      JSON.stringify({ dedupe_key, message: { ...message, template_data: 0 } }).replace(
        '"template_data":0',
        `"template_data":${data}`,
      ),
    )
const keys = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, index]))
const problemOf = ({ status, body }: { status: number; body: { code?: string; detail?: string; errors?: unknown } }) => ({
  status,
  code: body.code,
  says: body.detail ?? body.errors,
})

describe('template data', () => {
  test('has up to 2,000 values, however they are nested', async () => {
    const [flat, nested, tooMany, tooManyNested] = [
      await ask(keys(2_000), 'data:flat'),
      await ask({ lines: Array.from({ length: 666 }, () => ({ a: 1, b: 2 })) }, 'data:nested'),
      await ask(keys(2_001), 'data:many'),
      await ask({ lines: Array.from({ length: 667 }, () => ({ a: 1, b: 2 })) }, 'data:many'),
    ]

    expect([flat.status, nested.status]).toEqual([202, 202])
    for (const answer of [tooMany, tooManyNested])
      expect(problemOf(answer)).toEqual({
        status: 400,
        code: 'invalid_request',
        says: [{ path: 'message.template_data', message: 'has more than 2,000 values' }],
      })
  })

  test.each(['9007199254740993', '-9007199254740992', '{"deep":[1,12345678901234567890]}', '1e300'])(
    'an integer that would lose digits is refused, not changed: %s',
    async (number) => {
      const answer = await askText(`{"n":${number}}`)

      expect(problemOf(answer)).toEqual({
        status: 400,
        code: 'invalid_request',
        says: [
          {
            path: 'message.template_data',
            message: 'has an integer beyond 2^53, which would lose digits: write it as a string',
          },
        ],
      })
      expect((await pool.query(`select from email_sends where dedupe_key = 'data:1'`)).rowCount).toBe(0)
    },
  )

  test('the largest exact integer, a fraction and digits in a string arrive as they were written', async () => {
    const { body } = await askText('{"a":9007199254740991,"b":0.5,"c":"12345678901234567890"}', 'data:exact')

    expect(body.message.template_data).toEqual({ a: 9_007_199_254_740_991, b: 0.5, c: '12345678901234567890' })
  })
})

describe('a JSON body', () => {
  test('of more than 5,000 values is refused before anything is made of them', async () => {
    for (const data of [
      `{${Array.from({ length: 100_000 }, (_, index) => `"k${index}":1`).join()}}`,
      `[${'1,'.repeat(700_000)}1]`,
    ])
      expect(problemOf(await askText(data))).toEqual({
        status: 400,
        code: 'invalid_request',
        says: 'the body has more than 5,000 values',
      })
  })

  test('that is null, a number, a text or a list is a wrong request, not broken JSON', async () => {
    for (const text of ['null', '1', '"x"', '[]', 'true']) {
      const { status, body } = await call('post', '/v1/sends').set('content-type', 'application/json').send(text)
      expect([status, body.code, body.errors?.[0]?.path], text).toEqual([400, 'invalid_request', ''])
    }
  })

  test('that is not in UTF-8 is refused, never mended', async () => {
    const bytes = Buffer.from(
      JSON.stringify({ dedupe_key: 'utf8:#', message: { ...message, subject: 'x' } }).replace('#', '\u00ff'),
      'latin1',
    )
    const send = (type: string) =>
      call('post', '/v1/sends')
        .set('content-type', type)
        .serialize((body) => body)
        .send(bytes as unknown as string) // bytes as they are

    const [broken, other] = [await send('application/json'), await send('application/json; charset=iso-8859-1')]

    expect(problemOf(broken)).toEqual({ status: 400, code: 'invalid_json', says: 'the body is not in UTF-8' })
    expect([other.status, other.body.code]).toEqual([415, 'unsupported_encoding'])
    expect((await pool.query(`select from email_sends where dedupe_key like 'utf8:%'`)).rowCount).toBe(0)
  })

  test('without its Content-Type is told which one it needs, CSV too', async () => {
    const json = await call('post', '/v1/sends').set('content-type', 'text/plain').send('{}')
    const csv = await call('post', '/v1/reconcile?dry_run=true').set('content-type', 'application/json').send('{}')

    expect([json.body.errors, csv.body.errors]).toEqual([
      [{ path: 'Content-Type', message: 'must be application/json' }],
      [{ path: 'Content-Type', message: 'must be text/csv' }],
    ])
    expect(csv.body.detail).toBe('needs a CSV body with Content-Type: text/csv')
  })
})

describe('what nobody declared', () => {
  test('a body where none is taken is refused: a dry run that there is not must not replay', async () => {
    const id = await insertEvent(pool, 'evt_undeclared')
    replays.length = 0

    const wrong = [
      await post(`/v1/events/${id}/replay`, { dry_run: true }),
      await post(`/v1/events/${id}/replay`, []),
      await call('post', `/v1/events/${id}/replay`).set('content-type', 'text/plain').send('dry_run=true'),
      await call('post', `/v1/events/${id}/replay`).set('content-type', 'application/json').send('{'),
      await post(`/v1/events/${id}/replay`, { long: 'x'.repeat(10_000) }),
      await call('delete', '/v1/views/1', { force: true }),
      await call('get', '/v1/sending', { x: 1 }),
    ]

    for (const answer of wrong) expect(problemOf(answer)).toEqual({ status: 400, code: 'invalid_request', says: 'takes no body' })
    expect(replays).toEqual([])
  })

  test('nothing, an empty body and {} are no body', async () => {
    replays.length = 0

    const answers = [
      await post('/v1/events/7/replay'),
      await post('/v1/events/7/replay', {}),
      await call('post', '/v1/events/7/replay').set('content-type', 'application/x-www-form-urlencoded').send(''),
    ]

    expect(answers.map(({ status }) => status)).toEqual([202, 202, 202])
    expect(replays).toEqual(['7', '7', '7'])
  })

  const withoutQuery = declaredRoutes.filter(({ query }) => !query)
  test.each(withoutQuery.map((route) => [route.id, route] as const))('C-67 %s takes no parameter', async (_, route) => {
    const path = route.path.replace(/:(id|event|conflict)/g, '1').replace(/:(key|name)/g, 'x')
    replays.length = 0

    const { status, body } = await call(route.method, `${path}?dry_run=true`)

    expect([status, body.errors]).toEqual([400, [{ path: 'dry_run', message: 'unknown field' }]])
    expect(replays).toEqual([])
  })
})

describe('what is wrong is said by its place', () => {
  const resolve = (body: object) => post('/v1/resolve', body)
  const plan = { dry_run: true, decision: 'sent', reason: 'seen' }

  test.each([
    ['an empty key', () => post('/v1/sends', { dedupe_key: ' ', message }), 'dedupe_key', 'must not be empty'],
    [
      'a key of one dot',
      () => post('/v1/sends', { dedupe_key: '.', message }),
      'dedupe_key',
      'must not be . or .., which no path can hold',
    ],
    [
      'a key of two',
      () => post('/v1/sends', { dedupe_key: '..', message }),
      'dedupe_key',
      'must not be . or .., which no path can hold',
    ],
    ['a plan of no sends', () => resolve({ ...plan, sends: [] }), 'sends', expect.stringContaining('Too small')],
    [
      'a version of 0',
      () => resolve({ ...plan, sends: [{ key: 'a', version: 0 }] }),
      'sends.0.version',
      expect.stringContaining('Too small'),
    ],
    ['one key twice', () => resolve({ ...plan, sends: [{ key: 'a' }, { key: 'a', version: 1 }] }), 'sends', 'has a key twice'],
    ['a plan that is no ID', () => resolve({ plan: '7' }), 'plan', 'Invalid UUID'],
    [
      'an unknown decision',
      () => post('/v1/sends/x/resolve', { version: 1, decision: 'lost', reason: 'r' }),
      'decision',
      'must be one of sent, abandoned, retry',
    ],
    [
      'an event that is no row',
      () => post('/v1/sends/x/attach', { version: 1, event: 'evt_1', reason: 'r' }),
      'event',
      'must be the ID of a row, as a string of digits',
    ],
    ['a filter of nothing', () => post('/v1/replay', { filter: {}, dry_run: true }), 'filter', 'must name something'],
    [
      'a plan with a dry run',
      () => post('/v1/replay', { plan: '0b7f7f4e-9e5c-4a43-8a53-3f0a8e6f4e0d', dry_run: true }),
      'dry_run',
      'unknown field',
    ],
    [
      'a day that no calendar has',
      () => get('/v1/sends?since=2026-02-30'),
      'since',
      'must be an ISO 8601 time, or like 30m, 24h or 7d',
    ],
    ['its time', () => get('/v1/events?until=2026-02-30T10:00:00Z'), 'until', 'must be an ISO 8601 time, or like 30m, 24h or 7d'],
    [
      'a question mark',
      () => post('/v1/views', { screen: 'sends', name: 'v', query: '?status=sent' }),
      'query',
      'must be a query string, without its question mark',
    ],
  ])('%s', async (_, asking, path, message) => {
    const { status, body } = await asking()

    expect([status, body.errors]).toEqual([400, [{ path, message }]])
  })

  test('a sending log whose columns are not found names the parameter for them', async () => {
    const { body } = await call('post', '/v1/reconcile?dry_run=true').set('content-type', 'text/csv').send('a,b\n1,2\n')

    expect([body.code, body.detail]).toEqual([
      'unreadable_file',
      'no column looks like the message_id; name it by message_id_column',
    ])
  })
})

describe('headers', () => {
  test('a send that was asked for comes with its ETag, whether it waits, is held or was waited for', async () => {
    await insertSend(pool, 'etag:held', { state: 'sent', version: 6, message: JSON.stringify(message) })
    const [queued, held, waited] = [
      await post('/v1/sends', { dedupe_key: 'etag:1', message }),
      await post('/v1/sends', { dedupe_key: 'etag:held', message }),
      await post('/v1/sends', { dedupe_key: 'etag:held', message }).set('prefer', 'wait=1'),
    ]

    expect([queued, held, waited].map(({ status, headers }) => [status, headers.etag])).toEqual([
      [202, '"1"'],
      [200, '"6"'],
      [200, '"6"'],
    ])
  })

  test('a sixth unguarded send says when there may be another one, at the latest', async () => {
    const body = { dedupe_key: 'otp:headers', policy: 'unguarded', message: { ...message, to: 'otp@example.com' } }
    for (let time = 0; time < 5; time += 1) await post('/v1/sends', body)

    const { status, headers } = await post('/v1/sends', body)

    expect([status, headers['retry-after']]).toEqual([429, '900'])
  })

  test('the document declares them', async () => {
    const { body: document } = await get('/openapi.json')
    const { responses } = document.paths['/v1/sends'].post

    expect(Object.keys(responses['202'].headers)).toEqual(['ETag', 'Preference-Applied', 'x-request-id'])
    expect(Object.keys(responses['401'].headers)).toEqual(['WWW-Authenticate', 'x-request-id'])
    expect(Object.keys(responses['429'].headers)).toEqual(['Retry-After', 'x-request-id'])
    expect(Object.keys(document.paths['/webhooks/{source}'].post.responses['405'].headers)).toEqual(['Allow'])
  })

  test.each(['/openapi.json', '/docs'])('another method on %s is 405 with those that it has', async (path) => {
    const { status, headers, body } = await call('post', path)

    expect([status, headers.allow, body.code]).toEqual([405, 'GET, HEAD', 'method_not_allowed'])
  })
})
