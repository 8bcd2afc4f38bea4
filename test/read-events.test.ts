import { describe, expect, test, vi } from 'vitest'
import { readReport } from '../src/providers/catalog/inboxili.ts'
import type { Provider, WebhookRequest } from '../src/providers/provider.ts'
import { isSameEvent, payloadOf, readEvents } from '../src/providers/read-events.ts'
import { createProvider } from '../src/providers/registry.ts'
import { verify } from '../src/providers/signature.ts'

const generic = createProvider('generic', { header: 'X-Signature', algorithm: 'sha256', encoding: 'hex', id: 'id', type: 'type' })
const stripe = createProvider('stripe')
const github = createProvider('github')
const gocardless = createProvider('gocardless')
const inboxili = createProvider('inboxili')

/** What most events don't have. */
const noReferences = { objectRef: null, replayKey: null }

const post = (body: string | Buffer, headers: Record<string, string | string[]> = {}): WebhookRequest => ({
  headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value].flat()])),
  body: Buffer.from(body),
})
const read = (provider: Provider, body: string | Buffer, headers = {}) => readEvents(provider, post(body, headers))
const ids = (provider: Provider, body: string | Buffer, headers = {}) => read(provider, body, headers).events.map(({ id }) => id)

test('C-03 finds the ID behind a byte order mark', () => {
  expect(ids(generic, '\ufeff{"id":"evt_1"}')).toEqual(['evt_1'])
})

test('C-04 reads an event with emoji and non-Latin text', () => {
  const body = String.raw`{"id":"evt_1","type":"invoice.paid","note":"Zoë 😀 \u00e9 a\/b","amount":10.00,"big":9007199254740993}`

  expect(read(generic, body)).toEqual({
    events: [
      {
        id: 'evt_1',
        idBasis: 'provider',
        idIsSigned: true,
        type: 'invoice.paid',
        livemode: null,
        occurredAt: null,
        ...noReferences,
      },
    ],
  })
  expect(payloadOf(generic, post(body), 'evt_1')).toEqual({
    id: 'evt_1',
    type: 'invoice.paid',
    note: 'Zoë 😀 é a/b',
    amount: 10,
    big: '9007199254740993',
  })
})

test('C-25 reads the JSON inside a GitHub form', () => {
  const request = post('payload=%7B%22zen%22%3A%22a+b%22%7D', {
    'content-type': 'application/x-www-form-urlencoded',
    'x-hub-signature-256': 'sha256=e9aeb6f4dfc88150f8d8c2dd24d23cbc041e7ccade45a1f8bfe4fd27542175c6',
    'x-github-event': 'ping',
    'x-github-delivery': 'g1',
  })

  expect(verify(github.scheme, request, ['gh_test'], 1_700_000_000, 300)).toEqual({ ok: true, secretIndex: 0 })
  expect(readEvents(github, request).events).toEqual([
    { id: 'g1', idBasis: 'provider', idIsSigned: false, type: 'ping', livemode: null, occurredAt: null, ...noReferences },
  ])
  expect(payloadOf(github, request, 'g1')).toEqual({ zen: 'a b' })
  expect(isSameEvent(github, request, post('{ "zen": "a b" }'), 'g1')).toBe(true)
})

test('C-26 reads an event with a NUL in it', () => {
  const request = post(String.raw`{"id":"n1","name":"a\u0000b","lit":"c\\u0000d","k\u0000":1}`)

  expect(readEvents(generic, request).events.map(({ id }) => id)).toEqual(['n1'])
  expect(payloadOf(generic, request, 'n1')).toEqual({ id: 'n1', name: 'a\ufffdb', lit: String.raw`c\u0000d`, 'k\ufffd': 1 })
})

test('C-27 keeps two big numeric IDs apart', () => {
  expect(ids(generic, '{"id":9007199254740992}')).toEqual(['9007199254740992'])
  expect(ids(generic, '{"id":9007199254740993}')).toEqual(['9007199254740993'])
  expect(ids(generic, '{"id":1001}')).toEqual(['1001'])
  expect(read(generic, '{"id":1e300}')).toEqual({ events: [], unusable: 'bad_id' })
  expect(read(generic, '{"id":1.5}')).toEqual({ events: [], unusable: 'bad_id' })
})

test('C-28 finds no event in a body nested too deep', () => {
  const nested = (levels: number) => `{"id":"d1","x":${'['.repeat(levels)}${']'.repeat(levels)}}`

  expect(ids(generic, nested(100))).toEqual(['d1'])
  expect(read(generic, nested(5_000))).toEqual({ events: [], unusable: 'too_deep' })
  expect(read(generic, nested(100_000))).toEqual({ events: [], unusable: 'too_deep' })
})

describe('C-29 a signed body that is no usable event', () => {
  test.each([
    ['', 'empty_body'],
    ['ping', 'not_json'],
    ['{"id":"x"', 'not_json'],
    ['42', 'not_an_object'],
    ['null', 'not_an_object'],
    ['"evt_1"', 'not_an_object'],
    ['[]', 'not_an_object'],
    ['[{"id":"a"}]', 'not_an_object'],
    ['{}', 'no_id'],
    ['{"id":null}', 'no_id'],
    ['{"id":""}', 'no_id'],
    ['{"id":" "}', 'no_id'],
    ['{"id":{}}', 'no_id'],
    ['{"id":true}', 'no_id'],
    ['{"__proto__":{"id":"a"}}', 'no_id'],
    [String.raw`{"id":"a\u0000"}`, 'bad_id'],
    [String.raw`{"id":"a\ud83d"}`, 'bad_id'],
    [String.raw`{"id":"a\n"}`, 'bad_id'],
    [`{"id":"${'a'.repeat(513)}"}`, 'id_too_long'],
  ])('C-29 %j', (body, unusable) => {
    expect(read(generic, body)).toEqual({ events: [], unusable })
    expect(read(stripe, body)).toEqual({ events: [], unusable })
  })

  test('C-29 an ID of 512 characters is the longest', () => {
    expect(ids(generic, `{"id":"${'a'.repeat(512)}"}`)).toEqual(['a'.repeat(512)])
  })
})

test.each([
  '{"id":"e1"}',
  '{"id":"e1","type":null}',
  '{"id":"e1","type":7}',
  '{"id":"e1","type":""}',
  `{"id":"e1","type":"${'t'.repeat(256)}"}`,
])('C-33 an event without a usable type is an event: %s', (body) => {
  expect(read(stripe, body).events.map(({ id, type }) => [id, type])).toEqual([['e1', null]])
})

test('C-30 C-07 a GitHub type is the event and its action, and a delivery without one ID has none', () => {
  const headers = { 'x-github-event': 'sponsorship', 'x-github-delivery': 'g1' }

  expect(read(github, '{"action":"created"}', headers).events.map(({ id, type }) => [id, type])).toEqual([
    ['g1', 'sponsorship.created'],
  ])
  expect(read(github, '{"zen":"Keep it small.","hook_id":1}', { ...headers, 'x-github-event': 'ping' }).events[0]?.type).toBe(
    'ping',
  )
  expect(read(github, '{}', { 'x-github-event': 'ping' })).toEqual({ events: [], unusable: 'no_id' })
  expect(read(github, '{}', { ...headers, 'x-github-delivery': ['g1', 'g2'] })).toEqual({ events: [], unusable: 'no_id' })
  expect(read(github, 'payload=', headers)).toEqual({ events: [], unusable: 'empty_body' })
})

test('C-32 Stripe events tell their mode and time, snapshot and thin', () => {
  const snapshot = '{"id":"evt_1","object":"event","type":"invoice.paid","livemode":false,"created":1623979266}'
  const thin =
    '{"id":"evt_2","object":"v2.core.event","type":"v1.billing.meter.no_meter_found","livemode":true,"created":"2026-09-21T14:13:10.344Z"}'

  expect(read(stripe, snapshot).events).toEqual([
    {
      id: 'evt_1',
      idBasis: 'provider',
      idIsSigned: true,
      type: 'invoice.paid',
      livemode: false,
      occurredAt: new Date('2021-06-18T01:21:06Z'),
      ...noReferences,
    },
  ])
  expect(read(stripe, thin).events).toMatchObject([
    { id: 'evt_2', livemode: true, occurredAt: new Date('2026-09-21T14:13:10.344Z') },
  ])
  expect(read(stripe, '{"id":"evt_3","livemode":"no","created":"yesterday"}').events).toMatchObject([
    { livemode: null, occurredAt: null },
  ])
})

test('C-35 isSameEvent ignores how JSON is written and pending_webhooks, and nothing else', () => {
  const first = post('{"id":"evt_1","amount":10.00,"pending_webhooks":2}')

  expect(isSameEvent(stripe, first, first, 'evt_1')).toBe(true)
  expect(isSameEvent(stripe, first, post('{ "pending_webhooks": 1, "amount": 10.00, "id": "evt_1" }'), 'evt_1')).toBe(true)
  expect(isSameEvent(stripe, first, post('{"id":"evt_1","amount":99.00,"pending_webhooks":2}'), 'evt_1')).toBe(false)
  expect(isSameEvent(stripe, first, post('{"id":"evt_1","amount":10.0,"pending_webhooks":2}'), 'evt_1')).toBe(false)
  expect(isSameEvent(generic, first, post('{"id":"evt_1","amount":10.00,"pending_webhooks":1}'), 'evt_1')).toBe(false)
  expect(isSameEvent(stripe, first, post('broken'), 'evt_1')).toBe(false)
})

describe('GoCardless posts several events at once', () => {
  const first = {
    id: 'EV1',
    created_at: '2026-01-31T12:00:00.000Z',
    resource_type: 'payments',
    action: 'paid_out',
    links: { payment: 'PM1' },
  }
  const second = { id: 'EV2', created_at: '2026-01-31T12:00:01.000Z', resource_type: 'mandates', action: 'cancelled' }
  const list = (...events: unknown[]) => JSON.stringify({ events, meta: { webhook_id: 'WB1' } })

  test('each with its own ID, type and time', () => {
    expect(read(gocardless, list(first, second))).toEqual({
      events: [
        {
          id: 'EV1',
          idBasis: 'provider',
          idIsSigned: true,
          type: 'payments.paid_out',
          livemode: null,
          occurredAt: new Date('2026-01-31T12:00:00Z'),
          ...noReferences,
          objectRef: 'PM1',
        },
        {
          id: 'EV2',
          idBasis: 'provider',
          idIsSigned: true,
          type: 'mandates.cancelled',
          livemode: null,
          occurredAt: new Date('2026-01-31T12:00:01Z'),
          ...noReferences,
        },
      ],
    })
  })

  test('a bad element is told and does not hurt its neighbours, and of two with one ID the first counts', () => {
    expect(read(gocardless, list(first, 7, { id: null }, second)).unusable).toBe('not_an_object')
    expect(ids(gocardless, list(first, 7, { id: null }, second))).toEqual(['EV1', 'EV2'])
    expect(read(gocardless, list(first, { ...second, id: 'EV1' })).events.map(({ type }) => type)).toEqual(['payments.paid_out'])
    expect(ids(gocardless, list(...Array.from({ length: 250 }, (_, i) => ({ id: `EV${i}` }))))).toHaveLength(250)
  })

  test('a body without a list of events is unusable', () => {
    expect(read(gocardless, list())).toEqual({ events: [], unusable: 'no_events' })
    expect(read(gocardless, '{"events":"EV1"}')).toEqual({ events: [], unusable: 'no_events' })
    expect(read(gocardless, '{"id":"EV1"}')).toEqual({ events: [], unusable: 'no_events' })
    expect(read(gocardless, '[]')).toEqual({ events: [], unusable: 'no_events' })
  })

  test('its payload and its comparison are those of its own element, however the POST is grouped', () => {
    const both = post(list(first, second))
    const alone = post(list(second))

    expect(payloadOf(gocardless, both, 'EV2')).toEqual(second)
    expect(payloadOf(gocardless, alone, 'EV1')).toBeUndefined()
    expect(isSameEvent(gocardless, both, alone, 'EV2')).toBe(true)
    expect(isSameEvent(gocardless, both, post(list({ ...second, action: 'failed' })), 'EV2')).toBe(false)
    expect(isSameEvent(gocardless, both, alone, 'EV1')).toBe(false)
  })
})

describe('generic places', () => {
  const options = { header: 'X-Signature', algorithm: 'sha256', encoding: 'hex' }

  test('C-36 an ID and a type are found along a path', () => {
    const nested = createProvider('generic', { ...options, id: 'meta.ids.0', type: 'meta.event_name' })

    expect(read(nested, '{"meta":{"ids":[1001],"event_name":"order.paid"}}').events).toMatchObject([
      { id: '1001', type: 'order.paid' },
    ])
    expect(read(nested, '{"meta":"ids"}')).toEqual({ events: [], unusable: 'no_id' })
    const prototype = createProvider('generic', { ...options, id: 'constructor.name', type: 'type' })
    expect(read(prototype, '{"a":1}')).toEqual({ events: [], unusable: 'no_id' })
  })

  test('an ID from a header is not a signed one', () => {
    const byHeader = createProvider('generic', { ...options, id: { header: 'X-Event-Id' }, type: { header: 'X-Topic' } })

    expect(read(byHeader, '{}', { 'x-event-id': 'e1', 'x-topic': 'orders/paid' }).events).toEqual([
      {
        id: 'e1',
        idBasis: 'provider',
        idIsSigned: false,
        type: 'orders/paid',
        livemode: null,
        occurredAt: null,
        ...noReferences,
      },
    ])
    expect(read(byHeader, '{}', { 'x-event-id': ['e1', 'e2'] })).toEqual({ events: [], unusable: 'no_id' })
  })
})

describe('Inboxili', () => {
  const hash = '6a3121d9d840cdc1f52112ef3fb72e6aa683a84dd976609959779810489b0910'
  const at = new Date('2026-01-31T12:00:00Z')

  test('an event ID is the message ID and the type, or the hash of the body', () => {
    expect(read(inboxili, '{"event":"delivered","message_id":"m1"}').events).toEqual([
      {
        id: 'm1:delivered',
        idBasis: 'message_id+type',
        idIsSigned: true,
        type: 'delivered',
        livemode: null,
        occurredAt: null,
        ...noReferences,
      },
    ])
    expect(read(inboxili, '{"event":"delivered"}').events).toEqual([
      {
        id: `sha256:${hash}`,
        idBasis: 'body_hash',
        idIsSigned: true,
        type: 'delivered',
        livemode: null,
        occurredAt: null,
        ...noReferences,
      },
    ])
    expect(read(inboxili, '{"message_id":"m1"}')).toEqual({ events: [], unusable: 'no_id' })
    expect(read(inboxili, '{}')).toEqual({ events: [], unusable: 'no_id' })
    expect(inboxili.otherBodyIsFurtherEvent).toBe(true)
  })

  test('C-63 a number is no message ID', () => {
    const body = '{"event":"delivered","message_id":42}'

    expect(read(inboxili, body).events).toMatchObject([{ idBasis: 'body_hash', type: 'delivered' }])
    expect(readReport(JSON.parse(body), at)).toEqual({ kind: 'delivered', occurredAt: at, hasOwnTime: false })
  })

  test('a further event has the payload of its body under the longer ID', () => {
    const request = post('{"event":"bounced","message_id":"m1","bounce_type":"hard"}')

    expect(payloadOf(inboxili, request, `m1:bounced:${hash}`)).toEqual({
      event: 'bounced',
      message_id: 'm1',
      bounce_type: 'hard',
    })
  })

  test('C-65 a time without a zone is UTC, whatever the zone of the server', () => {
    vi.stubEnv('TZ', 'America/New_York')
    const report = readReport({ event: 'opened', created_at: '2026-01-31 11:00:00' }, at)
    const date = readReport({ event: 'opened', created_at: '2026-01-31' }, at)
    const hoursBehindUtc = at.getTimezoneOffset() / 60
    vi.unstubAllEnvs()

    expect(hoursBehindUtc).toBe(5)
    expect(report.occurredAt).toEqual(new Date('2026-01-31T11:00:00Z'))
    expect(date.occurredAt).toEqual(new Date('2026-01-31T00:00:00Z'))
  })

  test('a report reads recipient and time from any of the known fields', () => {
    const noon = new Date('2026-01-31T11:00:00Z')

    expect(readReport({ event: 'delivered', message_id: 'm1', to: ' ada@example.com ', timestamp: 1769857200 }, at)).toEqual({
      kind: 'delivered',
      messageId: 'm1',
      recipient: 'ada@example.com',
      occurredAt: noon,
      hasOwnTime: true,
    })
    expect(readReport({ event: 'opened', recipient: 'ada@example.com', occurred_at: 1769857200000 }, at)).toEqual({
      kind: 'opened',
      recipient: 'ada@example.com',
      occurredAt: noon,
      hasOwnTime: true,
    })
    expect(readReport({ event: 'opened', email: 'ada@example.com', created_at: '2026-01-31T12:00:00+01:00' }, at)).toMatchObject({
      recipient: 'ada@example.com',
      occurredAt: noon,
    })
    expect(readReport({ event: 'opened', created_at: '2026-01-31 11:00:00' }, at).occurredAt).toEqual(noon)
    expect(readReport({ event: 'opened', timestamp: '1769857200' }, at).occurredAt).toEqual(noon)
    expect(readReport({ event: 'opened', timestamp: 'soon', created_at: '2026-01-31T11:00:00Z' }, at).occurredAt).toEqual(noon)
  })

  test.each([
    [{ to: ['ada@example.com'] }, 'ada@example.com'],
    [{ to: 'Ada <ada@example.com>' }, 'ada@example.com'],
    [{ to: 'ada@example.com', email: 'ADA@example.com' }, 'ada@example.com'],
    [{ to: 'ada@example.com', email: 'receipt', recipient: null }, 'ada@example.com'],
    [{ to: ['ada@example.com', 'bob@example.com'] }, undefined],
    [{ to: 'ada@example.com, bob@example.com' }, undefined],
    [{ to: 'ada@example.com', email: 'bob@example.com' }, undefined],
    [{ to: `${'a'.repeat(250)}@example.com` }, undefined],
  ])('a report about %j has the recipient %s', (fields, recipient) => {
    expect(readReport({ event: 'delivered', ...fields }, at).recipient).toBe(recipient)
  })

  test.each([
    [{ bounce_type: 'soft' }, 'soft'],
    [{ type: 'Transient' }, 'soft'],
    [{ classification: 'deferred' }, 'soft'],
    [{ type: 'soft_bounce' }, 'soft'],
    [{ type: 'temporary failure' }, 'soft'],
    [{ type: 'hard' }, 'hard'],
    [{ type: 'permanent' }, 'hard'],
    [{ status: '4.2.2' }, 'soft'],
    [{ status: '5.1.1' }, 'hard'],
    [{ type: 'transient', status: '5.1.1' }, 'hard'],
    [{ type: 'transient', smtp_code: '5.1.1' }, 'hard'],
    [{ type: 'hard', diagnostic: 'smtp; 452 4.2.2 mailbox full.' }, 'soft'],
    [{ reason: '550-5.1.1 The email account does not exist.' }, 'hard'],
    [{ bounce: { type: 'soft', code: '5.7.26' } }, 'hard'],
    [{ reason: 'connect to 5.1.1.9 timed out' }, 'unknown'],
    [{ reason: 'version 15.1.1' }, 'unknown'],
    [{ type: 'blocked' }, 'unknown'],
    [{ type: 7, status: null, bounce: [] }, 'unknown'],
    [{}, 'unknown'],
  ])('C-62 a bounce with %j is %s', (fields, bounceKind) => {
    expect(readReport({ event: 'bounced', message_id: 'm1', ...fields }, at).bounceKind).toBe(bounceKind)
  })

  test.each([
    null,
    undefined,
    42,
    'delivered',
    [],
    [1],
    {},
    { event: {}, message_id: [], to: {}, timestamp: {} },
    { event: 7, timestamp: -1 },
  ])('a report of %j throws nothing and guesses nothing', (payload) => {
    expect(readReport(payload, at)).toEqual({ kind: 'unknown', occurredAt: at, hasOwnTime: false })
  })
})

test('Standard Webhooks and Svix take the ID from the signed header and the type from the body', () => {
  const standard = createProvider('standard-webhooks')
  const svix = createProvider('svix')
  const body = '{"type":"order.paid","timestamp":"2026-09-21T14:13:10.344522Z"}'

  expect(read(standard, body, { 'webhook-id': 'msg_1' }).events).toEqual([
    {
      id: 'msg_1',
      idBasis: 'provider',
      idIsSigned: true,
      type: 'order.paid',
      livemode: null,
      occurredAt: new Date('2026-09-21T14:13:10.344Z'),
      ...noReferences,
    },
  ])
  expect(ids(svix, body, { 'svix-id': 'msg_2', 'webhook-id': 'msg_1' })).toEqual(['msg_2'])
  expect(ids(svix, body, { 'webhook-id': 'msg_1' })).toEqual(['msg_1'])
})

describe('the facts that a provider may tell beside', () => {
  type Element = Record<string, unknown>
  const told: Provider = {
    ...generic,
    object: (event) => (event as Element).object,
    replayKey: (event) => (event as Element).token,
    needsPerson: (event) => ((event as Element).type === 'confirm' ? 'it wants to be confirmed' : undefined),
  }
  const facts = (event: object) =>
    read(told, JSON.stringify({ id: 'e1', ...event })).events.map(({ objectRef, replayKey, needsPerson }) => [
      objectRef,
      replayKey,
      needsPerson,
    ])

  test.each<[unknown, string | null]>([
    ['sub_1', 'sub_1'],
    [1001, '1001'],
    ['o'.repeat(255), 'o'.repeat(255)],
    ['o'.repeat(256), null],
    ['', null],
    [' ', null],
    ['a\n', null],
    ['a\u0000', null],
    [1.5, null],
    [{ id: 'sub_1' }, null],
    [null, null],
    [undefined, null],
  ])('an object and a token of %j are %j', (value, text) => {
    expect(facts({ object: value, token: value })).toEqual([[text, text, undefined]])
  })

  test('an object with more digits than a number holds keeps them', () => {
    expect(read(told, '{"id":"e1","object":9007199254740993}').events[0]?.objectRef).toBe('9007199254740993')
  })

  test('why a person has to look first', () => {
    expect(facts({ type: 'confirm' })).toEqual([[null, null, 'it wants to be confirmed']])
  })

  test('each fact may stand in the request, and the mode in the payload around the event', () => {
    const header = ({ headers }: WebhookRequest, name: string) => headers[name]?.[0]
    const around: Provider = {
      ...generic,
      events: (payload) => (payload as { list: unknown[] }).list,
      id: (event, request) => `${header(request, 'x-id')}-${(event as Element).n}`,
      type: (_event, request) => request.body.length > 1 && header(request, 'x-type'),
      occurredAt: (_event, request) => header(request, 'x-time'),
      livemode: (_event, _request, payload) => (payload as { live: boolean }).live,
    }
    const headers = { 'x-id': 'h1', 'x-type': 'paid', 'x-time': '1623979266' }
    const body = '{"live":false,"list":[{"n":1},{"n":2}]}'

    expect(read(around, body, headers).events).toMatchObject([
      { id: 'h1-1', type: 'paid', livemode: false, occurredAt: new Date('2021-06-18T01:21:06Z') },
      { id: 'h1-2', type: 'paid', livemode: false, occurredAt: new Date('2021-06-18T01:21:06Z') },
    ])
    expect(payloadOf(around, post(body, headers), 'h1-2')).toEqual({ n: 2 })
    expect(isSameEvent(around, post(body, headers), post('{"live":true,"list":[{"n":2}]}', headers), 'h1-2')).toBe(true)
  })
})

describe('a provider whose every delivery is an event', () => {
  const each: Provider = { ...generic, idBasis: 'delivery', idIsSigned: false }

  test('has an ID of its own for each, and a signed one, as the same bytes are another event', () => {
    const [first, second] = [read(each, '{"id":"tr_1"}').events, read(each, '{"id":"tr_1"}').events].flat()

    for (const event of [first, second])
      expect(event).toMatchObject({ id: expect.stringMatching(/^tr_1:[0-9a-f-]{36}$/), idBasis: 'delivery', idIsSigned: true })
    expect(first?.id).not.toBe(second?.id)
    expect(readEvents(each, post('{"id":"tr_1"}'), 'd1').events[0]?.id).toBe('tr_1:d1')
    expect(read(each, '{"id":null}')).toEqual({ events: [], unusable: 'no_id' })
  })

  test('has its payload and its comparison whatever the ID', () => {
    const request = post('{"id":"tr_1"}')

    expect(payloadOf(each, request, 'tr_1:gone')).toEqual({ id: 'tr_1' })
    expect(isSameEvent(each, request, post('{ "id": "tr_1" }'), 'tr_1:gone')).toBe(true)
    expect(isSameEvent(each, request, post('{"id":"tr_2"}'), 'tr_1:gone')).toBe(false)
  })
})
