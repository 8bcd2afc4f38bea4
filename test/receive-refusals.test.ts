import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { env, readConfig } from '../src/config.ts'
import { ConfigError } from '../src/settings.ts'
import { testDatabase } from './support/database.ts'
import {
  BODY_H,
  BODY_H_MAC,
  countRows,
  emptyTables,
  ingest,
  STANDARD_MAC,
  STRIPE_A,
  STRIPE_B,
  signed,
  sources,
  storedEvents,
} from './support/posting.ts'
import { hexHmac, stripeSignature } from './support/service.ts'

const database = await testDatabase()
const service = await ingest(database)
const { post, send } = service
const nothing = { events: 0, bodies: 0, conflicts: 0, jobs: 0, sends: 0 }
beforeEach(() => emptyTables(database))
afterEach(() => {
  service.config.current = readConfig({ sources })
  service.clock.now = Date.now()
})

const signatureHeaders = {
  stripe: 'stripe-signature',
  generic: 'x-signature',
  github: 'x-hub-signature-256',
  gocardless: 'webhook-signature',
  inboxili: 'x-inboxili-signature',
  standard: 'webhook-signature',
}

test('C-10 a missing or empty signature header is a plain 401', async () => {
  for (const [source, header] of Object.entries(signatureHeaders)) {
    for (const headers of [{}, { [header]: '' }]) {
      const answer = await post(`/webhooks/${source}`, BODY_H, headers)
      expect([source, answer.status, answer.text, answer.headers['content-length']]).toEqual([source, 401, '', '0'])
    }
  }
  expect(await countRows(database)).toEqual(nothing)
})

test('C-11 a thousand signatures of the wrong length are a thousand 401', async () => {
  const of = (length: number) => 'ab'.repeat(400).slice(0, length)
  const given = [3, 0, 63, 65, 640, 64].map(of)
  const attempts = Array.from({ length: 1_000 }, (_, index) => {
    const value = given[index % given.length] ?? ''
    const [source = '', header = ''] = Object.entries(signatureHeaders)[index % 6] ?? []
    return post(`/webhooks/${source}`, BODY_H, { [header]: index % 2 === 0 || source !== 'github' ? value : `sha256=${value}` })
  })

  const answers = await Promise.all(attempts)

  expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`))).toEqual(new Set(['401 ']))
  expect(await countRows(database)).toEqual(nothing)
  expect((await post('/webhooks/generic', BODY_H, { 'x-signature': BODY_H_MAC })).status).toBe(200)
})

test('I5 nothing is stored of what another secret, another source or another scheme has signed', async () => {
  const { now } = service.clock
  const arrivedBefore = service.arrived()
  const attempts = [
    await post('/webhooks/stripe', BODY_H, signed.stripe(BODY_H, now, 'whsec_test_B')),
    await post('/webhooks/generic', BODY_H, signed.stripe(BODY_H, now)),
    await post('/webhooks/gocardless', BODY_H, { 'webhook-signature': BODY_H_MAC }),
    await post('/webhooks/github', BODY_H, { ...signed.github(BODY_H, 'g1'), 'x-hub-signature-256': 'sha1=aaaa' }),
    await post('/webhooks/github', `${BODY_H} `, signed.github(BODY_H, 'g1')),
    await post('/webhooks/inboxili', BODY_H, { 'x-inboxili-signature': hexHmac(BODY_H, '') }),
    await post('/webhooks/standard', BODY_H, {
      'webhook-id': 'msg_1',
      'webhook-timestamp': '1700000000',
      'webhook-signature': 'v1,Z5ROASq7ybdSMtBVMXCtu+D7JYIvFeHJsheJkPaQnew=',
    }),
  ]

  expect(attempts.map((answer) => `${answer.status} ${answer.text}`)).toEqual(attempts.map(() => '401 '))
  expect(await countRows(database)).toEqual(nothing)
  expect(service.arrived()).toBe(arrivedBefore)
})

test('a doubled signature header is refused, whichever of the two is right', async () => {
  const other = BODY_H_MAC.replaceAll('5', '6')

  const answers = [
    await post('/webhooks/generic', BODY_H, { 'x-signature': [BODY_H_MAC, BODY_H_MAC] }),
    await post('/webhooks/generic', BODY_H, { 'x-signature': [BODY_H_MAC, other] }),
    await post('/webhooks/generic', BODY_H, { 'x-signature': [other, BODY_H_MAC] }),
  ]

  expect(answers.map((answer) => answer.status)).toEqual([401, 401, 401])
  expect(await countRows(database)).toEqual(nothing)
})

test('a header that says what the event is and comes twice is refused, as nobody could tell which counts', async () => {
  const body = '{"zen":"a"}'
  const once = { ...signed.github(body, 'd1') }

  const answers = [
    await post('/webhooks/github', body, { ...once, 'x-github-delivery': ['d1', 'd2'] }),
    await post('/webhooks/github', body, { ...once, 'x-github-event': ['push', 'ping'] }),
  ]

  expect(answers.map((answer) => answer.status)).toEqual([401, 401])
  expect(await countRows(database)).toEqual(nothing)
})

describe('C-13 a source without a usable secret', () => {
  afterEach(() => {
    delete process.env.GENERIC_SECRETS
  })

  test.each([
    ['unset', undefined],
    ['empty', ''],
    ['blank', '   '],
    ['blanks and commas', ' , ,'],
  ])('does not start when its variable is %s', (_name, value) => {
    if (value !== undefined) process.env.GENERIC_SECRETS = value

    const read = () => readConfig({ sources: { generic: { ...sources.generic, secrets: env.list('GENERIC_SECRETS') } } })

    expect(read).toThrow(ConfigError)
    expect(read).toThrow(/GENERIC_SECRETS/)
  })

  test.each([[[]], [['']], [['   ']], [['secret_test', '']]])('does not start with the secrets %j', (secrets) => {
    expect(() => readConfig({ sources: { generic: { ...sources.generic, secrets } } })).toThrow(ConfigError)
  })

  test('refuses what the empty key has signed, even if it were to run with one', async () => {
    const { current } = service.config
    const generic = current.sources.get('generic')
    if (!generic) throw new Error('no source')
    const emptyKey = { 'x-signature': 'c0f553f4904ad1608ffc1cac2f21ff80e3ab5d8232d318e135c52ad82c72b4d3' }

    const statuses = [(await post('/webhooks/generic', BODY_H, emptyKey)).status]
    for (const secrets of [[], [''], ['   ']]) {
      service.config.current = { ...current, sources: new Map([['generic', { ...generic, secrets }]]) }
      statuses.push((await post('/webhooks/generic', BODY_H, emptyKey)).status, (await post('/webhooks/generic', BODY_H)).status)
    }

    expect(statuses).toEqual([401, 401, 401, 401, 401, 401, 401])
    expect(await countRows(database)).toEqual(nothing)
  })
})

test('C-15 two secrets are live at once until one is removed, and no request falls between', async () => {
  service.clock.now = 1_700_000_000_000
  const withSecrets = (...secrets: string[]) => readConfig({ sources: { stripe: { provider: 'stripe', secrets } } })
  const postAs = (mac: string) => post('/webhooks/stripe', BODY_H, { 'stripe-signature': `t=1700000000,v1=${mac}` })
  service.config.current = withSecrets('whsec_test_A', 'whsec_test_B')

  const both = [await postAs(STRIPE_A), await postAs(STRIPE_B)]
  const during = Array.from({ length: 40 }, (_, index) => {
    if (index === 20) service.config.current = withSecrets('whsec_test_B')
    return postAs(STRIPE_B)
  })
  const after = await postAs(STRIPE_A)

  expect(both.map((answer) => [answer.status, answer.json.status])).toEqual([
    [200, 'accepted'],
    [200, 'duplicate'],
  ])
  expect(new Set((await Promise.all(during)).map((answer) => answer.status))).toEqual(new Set([200]))
  expect(after.status).toBe(401)
  const { rows } = await database.pool.query('select secret_index from webhook_events')
  expect(rows).toEqual([{ secret_index: 0 }])
})

describe('C-16 the age of a signed time', () => {
  const stamped = {
    stripe: { 'stripe-signature': `t=1700000000,v1=${STRIPE_A}` },
    standard: { 'webhook-id': 'msg_1', 'webhook-timestamp': '1700000000', 'webhook-signature': STANDARD_MAC },
    timed: { 'x-signature': hexHmac(`1700000000.${BODY_H}`, 'secret_test'), 'x-time': '1700000000' },
  }

  test.each(Object.entries(stamped))('is taken at 300 s and refused at 301 s, early and late: %s', async (source, headers) => {
    service.config.current = readConfig({ sources: { ...sources, timed: { ...sources.generic, timestampHeader: 'X-Time' } } })

    const statuses: Record<number, number> = {}
    for (const age of [301, 300, 0, -300, -301]) {
      service.clock.now = (1_700_000_000 + age) * 1_000
      statuses[age] = (await post(`/webhooks/${source}`, BODY_H, headers)).status
    }

    expect(statuses).toEqual({ 301: 401, 300: 200, 0: 200, [-300]: 200, [-301]: 401 })
  })
})

test.each(['abc', '', '1700000000abc', '1e99', '-1', '0x65', ' 1700000000', 'Infinity', '1700000000.0', '+1700000000', 'NaN'])(
  'C-17 a signed time that is no number never skips the check: %j',
  async (time) => {
    service.clock.now = 1_700_000_000_000
    service.config.current = readConfig({
      sources: { ...sources, timed: { ...sources.generic, timestampHeader: 'X-Time', signed: '{timestamp}.{body}' } },
    })
    const mac = (secret: string) => hexHmac(`${time}.${BODY_H}`, secret)

    const stripe = await post('/webhooks/stripe', BODY_H, { 'stripe-signature': `t=${time},v1=${mac('whsec_test_A')}` })
    // A blank before a header's value is no part of it, so there is nothing to refuse here for that one.
    const timed = await post('/webhooks/timed', BODY_H, { 'x-time': time.trim(), 'x-signature': mac('secret_test') })

    expect([stripe.status, timed.status]).toEqual([401, 401])
    expect(await countRows(database)).toEqual(nothing)
  },
)

test.each([Number.NaN, -1, '', Number.POSITIVE_INFINITY, null])('C-17 a tolerance of %j does not start', (toleranceSeconds) => {
  expect(() => readConfig({ sources: { stripe: { provider: 'stripe', secrets: ['whsec_test_A'], toleranceSeconds } } })).toThrow(
    /toleranceSeconds/,
  )
})

test('C-18 an exact replay is a duplicate inside the window and refused outside of it', async () => {
  const start = service.clock.now
  const headers = { 'stripe-signature': stripeSignature(BODY_H, 'whsec_test_A', Math.floor(start / 1_000)) }

  const answers = []
  for (const seconds of [0, 60, 400]) {
    service.clock.now = start + seconds * 1_000
    answers.push(await post('/webhooks/stripe', BODY_H, headers))
  }

  expect(answers.map((answer) => [answer.status, answer.json.status])).toEqual([
    [200, 'accepted'],
    [200, 'duplicate'],
    [401, undefined],
  ])
  expect((await storedEvents(database)).map((event) => event.redeliveries)).toEqual([1])
})

test('an unknown source is 404 with a stable code, and a webhook is only ever posted', async () => {
  const unknown = await post('/webhooks/nobody', BODY_H, { 'x-signature': BODY_H_MAC })
  const others = []
  for (const method of ['GET', 'HEAD', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) others.push(await send(method, '/webhooks/generic'))

  expect([unknown.status, unknown.headers['content-type'], unknown.json.code]).toEqual([
    404,
    'application/problem+json; charset=utf-8',
    'unknown_source',
  ])
  expect(others.map((answer) => [answer.status, answer.headers.allow])).toEqual(others.map(() => [405, 'POST']))
  expect(others[0]?.json.code).toBe('method_not_allowed')
  expect(await countRows(database)).toEqual(nothing)
})

test('C-69 a refusal logs its reason, and nothing that came with the request', async () => {
  service.logged.length = 0

  await post('/webhooks/generic', '{"id":"e","to":"ada@example.com"}', {
    'x-signature': hexHmac('other', 'secret_test'),
    authorization: 'Bearer zzz-secret',
    cookie: 'a=zzz-secret',
  })

  expect(service.logged).toEqual([
    expect.objectContaining({ level: 'info', source: 'generic', result: 'refused', reason: 'signature_mismatch', bytes: 33 }),
  ])
  expect(JSON.stringify(service.logged)).not.toMatch(/zzz-secret|secret_test|ada@example|[0-9a-f]{64}/)
})
