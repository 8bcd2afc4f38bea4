import { beforeEach, describe, expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { countRows, emptyTables, listen, signed, sources, storedEvents } from './support/posting.ts'
import { connect, testService } from './support/service.ts'

const email = (payload: { id: string }) => ({
  key: `welcome:${payload.id}`,
  to: 'ada@example.com',
  from_email: 'hello@example.com',
  subject: 'Hello',
  html_body: 'Hello',
})
const database = await testDatabase()
const service = await testService(database, {
  sources: {
    ...sources,
    stripe_b: { provider: 'stripe', secrets: ['whsec_test_B'] },
    stripe_test: { provider: 'stripe', secrets: ['whsec_test_A'], mode: 'test' },
  },
  followUps: [{ source: 'stripe', type: ['invoice.paid', 'invoice.sent'], email }],
})
const { post } = await listen(service.app)
// printf ping | sha256sum
const PING_SHA256 = '758d61f26a44448384e5c4468a0dcb7a2abe456067b0f7b505bc28b9411fe931'
beforeEach(() => emptyTables(database))

const postStripe = (body: string, source = 'stripe', secret = 'whsec_test_A') =>
  post(`/webhooks/${source}`, body, signed.stripe(body, service.clock.now, secret))
const postGeneric = (body: string, headers = {}) => post('/webhooks/generic', body, { ...signed.generic(body), ...headers })

describe('the answer to a webhook', () => {
  test('names each event by the ID of its provider, with what became of it', async () => {
    const body = '{"id":"evt_9","type":"invoice.paid"}'

    const answers = [await postStripe(body), await postStripe(body), await postStripe('ping')]

    expect(answers.map((answer) => answer.headers['content-type'])).toEqual(Array(3).fill('application/json; charset=utf-8'))
    expect(answers.map((answer) => answer.json)).toEqual([
      { status: 'accepted', events: [{ id: 'evt_9', type: 'invoice.paid', status: 'accepted' }] },
      { status: 'duplicate', events: [{ id: 'evt_9', type: 'invoice.paid', status: 'duplicate' }] },
      {
        status: 'quarantined',
        events: [{ id: `sha256:${PING_SHA256}`, type: null, status: 'quarantined' }],
      },
    ])
  })

  test('is accepted as a whole when one event of several is new, else quarantined when one is', async () => {
    const postBatch = async (...events: object[]) => {
      const body = JSON.stringify({ events })
      return (await post('/webhooks/gocardless', body, signed.gocardless(body))).json
    }
    const one = { id: 'EV1', resource_type: 'payments', action: 'paid' }
    const two = { id: 'EV2', resource_type: 'payments', action: 'failed' }
    const bad = { resource_type: 'payments', action: 'lost' }

    const answers = [await postBatch(one), await postBatch(one, two), await postBatch(one, bad), await postBatch(two, one)]

    expect(answers.map((answer) => [answer.status, answer.events?.map((event) => event.status)])).toEqual([
      ['accepted', ['accepted']],
      ['accepted', ['duplicate', 'accepted']],
      ['quarantined', ['duplicate', 'quarantined']],
      ['duplicate', ['duplicate', 'duplicate']],
    ])
  })
})

test('only allow-listed headers are stored, with those that the event is read from', async () => {
  const body = '{"id":"h1"}'
  const sent = {
    'content-type': 'application/json',
    'user-agent': 'sender/1.0',
    authorization: 'Bearer zzz-secret',
    cookie: 'session=zzz-secret',
    'x-api-key': 'zzz-secret',
    'x-forwarded-for': '192.0.2.1',
  }

  await postGeneric(body, sent)
  await post('/webhooks/github', body, { ...sent, ...signed.github(body, 'g1', 'ping') })
  await post('/webhooks/generic', '{"id":"h2"}', { ...signed.generic('{"id":"h2"}'), 'user-agent': 'u'.repeat(5_000) })

  expect((await storedEvents(database)).map((event) => event.headers)).toEqual([
    { 'content-type': 'application/json', 'user-agent': 'sender/1.0' },
    {
      'content-type': 'application/json',
      'user-agent': 'sender/1.0',
      'x-github-delivery': 'g1',
      'x-github-event': 'ping',
    },
    { 'user-agent': 'u'.repeat(1_000) },
  ])
})

describe('a job', () => {
  const jobs = async () =>
    (
      await database.pool.query<{ name: string; event_id: string }>(
        `select name, event_id from pgboss.job join webhook_events events on events.id = any (array(select (part ->> 0)::bigint from jsonb_array_elements(data -> 'events') part)) order by events.id`,
      )
    ).rows.map((row) => `${row.name} ${row.event_id}`)

  test('is made, once, for an event that a rule or the settlement wants, and for no other', async () => {
    const report = '{"event":"delivered","message_id":"m1"}'

    await postStripe('{"id":"e1","type":"invoice.paid"}')
    await postStripe('{"id":"e1","type":"invoice.paid"}')
    await postStripe('{"id":"e2","type":"invoice.made"}')
    await postStripe('{"id":"e3"}')
    await postStripe('{"id":"e4","type":"invoice.sent","livemode":false}')
    await postStripe('{"type":"invoice.paid"}')
    await postGeneric('{"id":"e5","type":"invoice.paid"}')
    await post('/webhooks/inboxili', report, signed.inboxili(report))

    expect(await jobs()).toEqual(['process-event e1', 'process-event m1:delivered'])
    expect((await storedEvents(database)).map((event) => event.status)).toEqual([
      'pending',
      'ignored',
      'ignored',
      'ignored',
      'quarantined',
      'ignored',
      'pending',
    ])
  })

  test('wakes the workers when it is committed, and only then', async () => {
    const listener = await connect(database.url)
    const notices: (string | undefined)[] = []
    listener.on('notification', ({ payload }) => notices.push(payload))
    await listener.query('listen oncehook_jobs')

    await postStripe('{"id":"e2","type":"invoice.made"}')
    await postStripe('{"id":"e1","type":"invoice.paid"}')
    await postStripe('{"id":"e1","type":"invoice.paid"}')
    await listener.query('select 1')
    await listener.end()

    expect(notices).toEqual(['process-event'])
  })
})

test('C-32 events of the other mode are stored and marked, and mail nobody', async () => {
  const answers = [
    await postStripe('{"id":"e1","type":"invoice.paid","livemode":false}'),
    await postStripe('{"id":"e2","type":"invoice.paid","livemode":true}'),
    await postStripe('{"id":"e3","type":"invoice.paid"}'),
    await postStripe('{"id":"e4","type":"invoice.paid","livemode":true}', 'stripe_test'),
    await postStripe('{"id":"e5","type":"invoice.paid","livemode":"false"}'),
  ]
  expect(await service.drain()).toEqual([])

  expect(answers.map((answer) => answer.json.status)).toEqual(Array(5).fill('accepted'))
  expect((await storedEvents(database)).map((event) => [event.event_id, event.livemode, event.status, event.error])).toEqual([
    ['e1', false, 'ignored', 'test event on a live source'],
    ['e2', true, 'processed', null],
    ['e3', null, 'processed', null],
    ['e4', true, 'ignored', 'live event on a test source'],
    ['e5', null, 'processed', null],
  ])
  const { rows } = await database.pool.query('select dedupe_key from email_sends order by dedupe_key')
  expect(rows.map((row) => row.dedupe_key)).toEqual(['welcome:e2', 'welcome:e3', 'welcome:e5'])
})

test('C-33 events of an unknown or missing type are accepted and ignored', async () => {
  const answers = [
    await postStripe('{"id":"e1","type":"made.up.v9"}'),
    await postStripe('{"id":"e2"}'),
    await postStripe('{"id":"e3","type":42}'),
    await postStripe(`{"id":"e4","type":"${'t'.repeat(10_000)}"}`),
    await postStripe('{"id":"e5","type":"constructor"}'),
  ]

  expect(answers.map((answer) => [answer.status, answer.json.status])).toEqual(Array(5).fill([200, 'accepted']))
  expect((await storedEvents(database)).map((event) => [event.type, event.status])).toEqual([
    ['made.up.v9', 'ignored'],
    [null, 'ignored'],
    [null, 'ignored'],
    [null, 'ignored'],
    ['constructor', 'ignored'],
  ])
  expect((await countRows(database))?.jobs).toBe(0)
})

test('C-36 one ID from three sources is three events', async () => {
  const body = '{"id":"1001","type":"invoice.paid"}'

  const answers = [await postStripe(body), await postStripe(body, 'stripe_b', 'whsec_test_B'), await postGeneric(body)]

  expect(answers.map((answer) => answer.json.status)).toEqual(['accepted', 'accepted', 'accepted'])
  expect((await storedEvents(database)).map((event) => [event.source, event.event_id])).toEqual([
    ['stripe', '1001'],
    ['stripe_b', '1001'],
    ['generic', '1001'],
  ])
})

test('C-20 a delivery event has no time of its own: 400 days later it is a duplicate still', async () => {
  const report = '{"event":"delivered","message_id":"m1"}'
  // The literal value is that of the secret inbx_test.
  const postReport = () =>
    post('/webhooks/inboxili', report, {
      'x-inboxili-signature': 'a401c3014569d6580654a375e029bc09b7fa3a0e4e208ddd9964dcd58c4b380e',
    })
  const before = service.clock.now

  const answers = [await postReport(), await postReport()]
  service.clock.now = before + 400 * 86_400_000
  answers.push(await postReport())
  service.clock.now = before

  expect(answers.map((answer) => [answer.status, answer.json.status])).toEqual([
    [200, 'accepted'],
    [200, 'duplicate'],
    [200, 'duplicate'],
  ])
  expect(await countRows(database)).toEqual({ events: 1, bodies: 0, conflicts: 0, jobs: 1, sends: 0 })
})
