import { beforeEach, describe, expect, test } from 'vitest'
import { openPool } from '../src/db.ts'
import { testDatabase } from './support/database.ts'
import { countRows, emptyTables, ingest, listen, sha256Hex, signed, sources, storedEvents } from './support/posting.ts'
import { testService } from './support/service.ts'

const database = await testDatabase()
const service = await ingest(database)
const { post } = service
beforeEach(async () => {
  await emptyTables(database)
  service.logged.length = 0
})

const postGeneric = (body: string) => post('/webhooks/generic', body, signed.generic(body))
const postStripe = (body: string) => post('/webhooks/stripe', body, signed.stripe(body, service.clock.now))
const postGithub = (body: string, delivery: string, event?: string) =>
  post('/webhooks/github', body, signed.github(body, delivery, event))
const postInboxili = (body: string) => post('/webhooks/inboxili', body, signed.inboxili(body))
const conflicts = async () =>
  (
    await database.pool.query(
      `select event_id, convert_from(webhook_conflicts.body, 'UTF8') as body, encode(webhook_conflicts.body_sha256, 'hex') as sha256, times
       from webhook_conflicts join webhook_events events on events.id = event order by webhook_conflicts.id`,
    )
  ).rows

test('C-37 C-46 ten deliveries in sequence are ten 200, one row and nine redeliveries', async () => {
  const body = '{"id":"evt_1","type":"invoice.paid"}'

  const answers = []
  for (let count = 0; count < 10; count += 1) answers.push(await postStripe(body))

  expect(answers.map((answer) => [answer.status, answer.json.status])).toEqual([
    [200, 'accepted'],
    ...Array(9).fill([200, 'duplicate']),
  ])
  const { rows } = await database.pool.query(
    `select again.redeliveries, again.benign_variants, again.last_redelivered_at > received_at as is_later
     from webhook_events join webhook_redeliveries again on event = id`,
  )
  expect(rows).toEqual([{ redeliveries: 9, benign_variants: 0, is_later: true }])
  expect(new Set(service.logged.map((line) => line.level))).toEqual(new Set(['info']))
})

test('C-34 fifty copies at once over two instances are one event, one send and one email', async () => {
  const rule = {
    source: 'stripe',
    type: 'invoice.paid',
    email: () => ({ key: 'invoice:in_1:paid', to: 'ada@example.com', from_email: 'b@example.com', subject: 's', html_body: 't' }),
  }
  const other = openPool({ url: database.url, name: 'other', max: 10 })
  const services = [
    await testService(database, { sources, followUps: [rule] }),
    await testService({ url: database.url, pool: other }, { sources, followUps: [rule] }),
  ]
  const instances = await Promise.all(services.map((each) => listen(each.app)))
  const body = '{"id":"evt_1","type":"invoice.paid","livemode":true}'
  const headers = signed.stripe(body, Date.now())

  const answers = (
    await Promise.all(
      instances.map((each) => Promise.all(Array.from({ length: 25 }, () => each.post('/webhooks/stripe', body, headers)))),
    )
  ).flat()
  const stored = await countRows(database)
  const failures = (await Promise.all(services.map((each) => each.drain()))).flat()
  await other.end()

  expect(answers.map((answer) => answer.json.status).sort()).toEqual(['accepted', ...Array(49).fill('duplicate')])
  expect(stored).toEqual({ events: 1, bodies: 0, conflicts: 0, jobs: 1, sends: 0 })
  expect((await storedEvents(database)).map((event) => event.redeliveries)).toEqual([49])
  expect(failures).toEqual([])
  const { rows: sends } = await database.pool.query('select status from email_sends')
  expect(sends).toEqual([{ status: 'sent' }])
  expect(services.flatMap((each) => each.sandbox.ledger)).toHaveLength(1)
})

describe('C-35 the same ID with another body', () => {
  const first = '{"id":"evt_1","type":"invoice.paid","amount":10.00}'

  test('is answered 200 and kept as a conflict, once per content; the first stays the record', async () => {
    const other = '{"id":"evt_1","type":"invoice.paid","amount":99.00}'

    const answers = [await postGeneric(first), await postGeneric(other), await postGeneric(other), await postGeneric(first)]

    expect(answers.map((answer) => [answer.status, answer.json.status])).toEqual([
      [200, 'accepted'],
      [200, 'duplicate'],
      [200, 'duplicate'],
      [200, 'duplicate'],
    ])
    expect((await storedEvents(database)).map((event) => [event.body?.toString(), event.benign_variants])).toEqual([[first, 0]])
    expect(await conflicts()).toEqual([{ event_id: 'evt_1', body: other, sha256: sha256Hex(other), times: 2 }])
  })

  test('is kept ten times at most; those beyond are redeliveries only, and what is kept counts on', async () => {
    const other = (amount: number) => `{"id":"evt_1","type":"invoice.paid","amount":${amount}}`
    await postGeneric(first)

    for (let amount = 1; amount <= 15; amount += 1) await postGeneric(other(amount))
    await postGeneric(other(3))
    await postGeneric(other(10))

    expect((await conflicts()).map(({ body, times }) => [body, times])).toEqual(
      Array.from({ length: 10 }, (_, index) => [other(index + 1), index === 2 || index === 9 ? 2 : 1]),
    )
    expect((await storedEvents(database)).map((event) => event.redeliveries)).toEqual([17])
  })

  test('is a benign variant when only its key order, white space or escapes differ', async () => {
    await postGeneric(first)
    await postGeneric('{ "type": "invoice.paid",\n "amount": 10.00, "id": "evt_1" }')
    await postGeneric(String.raw`{"id":"evt\u005f1","type":"invoice.paid","amount":10.00}`)

    expect((await storedEvents(database)).map((event) => [event.redeliveries, event.benign_variants])).toEqual([[2, 2]])
    expect(await conflicts()).toEqual([])
  })

  test('is a benign variant each time when twenty arrive at once', async () => {
    await postGeneric(first)

    await Promise.all(Array.from({ length: 20 }, (_, index) => postGeneric(first.replace('{', `{${' '.repeat(index + 1)}`))))

    expect((await storedEvents(database)).map((event) => [event.redeliveries, event.benign_variants])).toEqual([[20, 20]])
  })

  test.each([
    ['10.0 for 10.00', '{"id":"evt_1","type":"invoice.paid","amount":10.0}'],
    ['a digit beyond 2^53', '{"id":"evt_1","type":"invoice.paid","amount":10.00,"big":9007199254740993}'],
    ['another type', '{"id":"evt_1","type":"invoice.sent","amount":10.00}'],
    ['pending_webhooks, which only Stripe changes', '{"id":"evt_1","type":"invoice.paid","amount":10.00,"pending_webhooks":1}'],
  ])('is a conflict for %s', async (_name, other) => {
    await postGeneric(first)
    await postGeneric(other)

    expect((await conflicts()).map((conflict) => conflict.body)).toEqual([other])
  })

  test('is no conflict when Stripe has only counted down pending_webhooks', async () => {
    const answers = []
    for (const pending of [2, 1, 0]) answers.push(await postStripe(`{"id":"evt_1","pending_webhooks":${pending},"data":{"a":1}}`))
    answers.push(await postStripe('{"id":"evt_1","pending_webhooks":0,"data":{"a":1,"pending_webhooks":3}}'))

    expect(answers.map((answer) => answer.json.status)).toEqual(['accepted', 'duplicate', 'duplicate', 'duplicate'])
    expect((await storedEvents(database)).map((event) => event.benign_variants)).toEqual([2])
    expect((await conflicts()).map((conflict) => conflict.body)).toEqual([
      '{"id":"evt_1","pending_webhooks":0,"data":{"a":1,"pending_webhooks":3}}',
    ])
  })

  test('is one record and one conflict when both arrive at once, again and again', async () => {
    const other = '{"id":"evt_1","type":"invoice.paid","amount":99.00}'

    const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => postGeneric(index % 2 === 0 ? first : other)))

    expect(answers.filter((answer) => answer.json.status === 'accepted')).toHaveLength(1)
    const [event] = await storedEvents(database)
    const kept = await conflicts()
    expect([event?.body?.toString(), kept[0]?.body].sort()).toEqual([first, other])
    expect(kept.map((conflict) => conflict.times)).toEqual([10])
    expect(event?.redeliveries).toBe(19)
  })
})

describe('I3 a captured body under an ID that nothing signs', () => {
  const body = '{"action":"opened","number":1}'

  test('is a duplicate when it comes back under a new delivery ID', async () => {
    const answers = [await postGithub(body, 'g1'), await postGithub(body, 'g2'), await postGithub(body, 'g1')]

    expect(answers.map((answer) => answer.json.status)).toEqual(['accepted', 'duplicate', 'duplicate'])
    expect((await storedEvents(database)).map((event) => [event.event_id, event.redeliveries])).toEqual([['g1', 2]])
    expect(await conflicts()).toEqual([])
  })

  test('is a new event under another event type', async () => {
    const answers = [await postGithub(body, 'g1', 'issues'), await postGithub(body, 'g2', 'pull_request')]

    expect(answers.map((answer) => answer.json.status)).toEqual(['accepted', 'accepted'])
    expect((await storedEvents(database)).map((event) => event.type)).toEqual(['issues.opened', 'pull_request.opened'])
  })

  test('is one event when it comes under fifty new IDs at once, and without a type too', async () => {
    const answers = await Promise.all([
      ...Array.from({ length: 50 }, (_, index) => postGithub(body, `g${index}`)),
      ...Array.from({ length: 50 }, (_, index) => postGithub(body, `t${index}`, '')),
    ])

    expect(answers.filter((answer) => answer.json.status === 'accepted')).toHaveLength(2)
    expect(answers.filter((answer) => answer.json.status === 'duplicate')).toHaveLength(98)
    expect((await storedEvents(database)).map((event) => event.redeliveries)).toEqual([49, 49])
  })

  test('is a conflict when the delivery ID is known and the body is not', async () => {
    await postGithub(body, 'g1')
    await postGithub('{"action":"opened","number":2}', 'g1')

    expect((await conflicts()).map((conflict) => [conflict.event_id, conflict.body])).toEqual([
      ['g1', '{"action":"opened","number":2}'],
    ])
  })
})

describe("another report under Inboxili's derived ID", () => {
  const soft = '{"event":"bounced","message_id":"m1","type":"soft"}'
  const hard = '{"event":"bounced","message_id":"m1","type":"hard"}'
  const hardId = `m1:bounced:${sha256Hex(hard)}`

  test('is a further event with a job of its own, and each of them repeated is a duplicate', async () => {
    const answers = []
    for (const body of [soft, hard, soft, hard, hard]) answers.push(await postInboxili(body))

    expect(answers.map((answer) => answer.json.events)).toEqual([
      [{ id: 'm1:bounced', type: 'bounced', status: 'accepted' }],
      [{ id: hardId, type: 'bounced', status: 'accepted' }],
      [{ id: 'm1:bounced', type: 'bounced', status: 'duplicate' }],
      [{ id: hardId, type: 'bounced', status: 'duplicate' }],
      [{ id: hardId, type: 'bounced', status: 'duplicate' }],
    ])
    expect(
      (await storedEvents(database)).map((event) => [event.event_id, event.body?.toString(), event.status, event.redeliveries]),
    ).toEqual([
      ['m1:bounced', soft, 'pending', 1],
      [hardId, hard, 'pending', 2],
    ])
    expect(await countRows(database)).toEqual({ events: 2, bodies: 0, conflicts: 0, jobs: 2, sends: 0 })
  })

  test('is no further event when it says the same in other bytes', async () => {
    await postInboxili(soft)
    const again = await postInboxili('{"message_id":"m1", "event":"bounced", "type":"soft"}')

    expect(again.json.events).toEqual([{ id: 'm1:bounced', type: 'bounced', status: 'duplicate' }])
    expect((await storedEvents(database)).map((event) => [event.redeliveries, event.benign_variants])).toEqual([[1, 1]])
  })

  test('is one event per content when forty arrive at once', async () => {
    const bodies = [soft, hard, soft.replace('soft', 'a'), soft.replace('soft', 'b')]

    const answers = await Promise.all(Array.from({ length: 40 }, (_, index) => postInboxili(bodies[index % 4] ?? '')))

    expect(answers.filter((answer) => answer.json.status === 'accepted')).toHaveLength(4)
    const events = await storedEvents(database)
    expect(events.map((event) => event.body?.toString()).sort()).toEqual([...bodies].sort())
    expect(events.map((event) => event.redeliveries)).toEqual([9, 9, 9, 9])
  })
})

test('I3 one ID and body under another type, which nobody signs, is a duplicate and kept as a conflict', async () => {
  const body = '{"action":"opened"}'

  const answers = [
    await postGithub(body, 'd1', 'made_up'),
    await postGithub(body, 'd1', 'issues'),
    await postGithub(body, 'd1', 'issues'),
    await postGithub(body, 'd1', 'made_up'),
  ]

  expect(answers.map((answer) => answer.json.status)).toEqual(['accepted', 'duplicate', 'duplicate', 'duplicate'])
  expect((await storedEvents(database)).map((event) => [event.type, event.redeliveries])).toEqual([['made_up.opened', 3]])
  expect(await conflicts()).toEqual([{ event_id: 'd1', body, sha256: sha256Hex(body), times: 2 }])
})
