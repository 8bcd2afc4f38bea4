import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { showEventCommand } from '../src/cli/events.ts'
import { type EventMeta, key, readConfig } from '../src/config.ts'
import { findEvent } from '../src/ops/event-queries.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent } from './support/ops-rows.ts'
import { emptyTables, listen, signed, sources, storedEvents } from './support/posting.ts'
import { testService } from './support/service.ts'

const database = await testDatabase()
const { pool } = database
const service = await testService(database, { sources })
const { post } = await listen(service.app)

interface Subscription {
  type: string
  data: { object: { id: string; status: string } }
}
const rule = vi.fn(({ data: { object } }: Subscription, { superseded }: EventMeta) =>
  superseded
    ? null
    : {
        key: key('subscription', object.id, object.status),
        to: 'ada@example.com',
        from_email: 'billing@example.com',
        subject: `Your subscription is ${object.status}`,
        html_body: 'See there.',
      },
)
const config = readConfig({
  sources,
  followUps: [
    { name: 'state', source: 'stripe', type: ['customer.subscription.created', 'customer.subscription.updated'], email: rule },
  ],
})

service.config.current = config

let callsBefore = 0
beforeEach(async () => {
  await emptyTables(database)
  callsBefore = service.sandbox.ledger.length
  rule.mockClear()
})

/** Posts what happened to the subscription sub_1; answers its row's ID. */
async function deliver(what: 'created' | 'updated', created: number | undefined, fields: object = {}): Promise<string> {
  const object = { id: 'sub_1', object: 'subscription', status: what === 'created' ? 'incomplete' : 'active' }
  const event = { id: `evt_${what}`, type: `customer.subscription.${what}`, livemode: true, created, data: { object }, ...fields }
  const body = JSON.stringify(event)
  await post('/webhooks/stripe', body, signed.stripe(body, service.clock.now))
  return (await storedEvents(database)).at(-1)?.id ?? ''
}
const told = () => rule.mock.calls.map(([{ type }, { superseded }]) => [type, superseded])
const emails = () => service.sandbox.ledger.slice(callsBefore).map(({ message }) => message?.subject)

test('C-39 "updated" before "created": both are stored, the older knows, and the email is of the newer', async () => {
  const updated = await deliver('updated', 1623979266)
  expect(await service.drain()).toEqual([])
  const created = await deliver('created', 1623979265)
  expect(await service.drain()).toEqual([])

  expect(told()).toEqual([
    ['customer.subscription.updated', false],
    ['customer.subscription.created', true],
  ])
  expect(emails()).toEqual(['Your subscription is active'])
  expect((await storedEvents(database)).map(({ status }) => status)).toEqual(['processed', 'processed'])
  for (const id of [updated, created]) {
    expect((await findEvent(pool, id))?.object).toEqual({
      ref: 'sub_1',
      events: [
        {
          id: updated,
          event_id: 'evt_updated',
          type: 'customer.subscription.updated',
          occurred_at: new Date('2021-06-18T01:21:06Z'),
          received_at: expect.any(Date),
          status: 'processed',
        },
        {
          id: created,
          event_id: 'evt_created',
          type: 'customer.subscription.created',
          occurred_at: new Date('2021-06-18T01:21:05Z'),
          received_at: expect.any(Date),
          status: 'processed',
        },
      ],
    })
  }
})

test('C-39 both stored before either is worked on: in whatever order, only the newer mails', async () => {
  const updated = await deliver('updated', 1623979266)
  const created = await deliver('created', 1623979265)

  await Promise.all([service.process(created), service.process(updated)])
  await service.drain()
  await service.replay(created)
  await service.drain()

  expect(told().filter(([type]) => type === 'customer.subscription.created')).toEqual(
    Array(2).fill(['customer.subscription.created', true]),
  )
  expect(emails()).toEqual(['Your subscription is active'])
})

describe('an event is superseded', () => {
  const later = { object_ref: 'sub_1', occurred_at: new Date('2021-06-18T01:21:06Z'), livemode: true }

  test.each<[boolean, string, object]>([
    [true, 'by a later event of its object', {}],
    [true, 'whether or not that one went well', { status: 'failed', processed_at: null }],
    [true, 'when no rule wants that one', { status: 'ignored' }],
    [true, 'by one that names no mode', { livemode: null }],
    [false, 'not by one of the same time', { occurred_at: new Date('2021-06-18T01:21:05Z') }],
    [false, 'not by an older one', { occurred_at: new Date('2021-06-18T01:21:04Z') }],
    [false, 'not by one without a time', { occurred_at: null }],
    [false, 'not by one of another object', { object_ref: 'sub_2' }],
    [false, 'not by one without an object', { object_ref: null }],
    [false, 'not by one of another source', { source: 'stripe-b' }],
    [false, 'not by one of the test mode', { livemode: false, status: 'ignored' }],
    [false, 'not by one that nobody has looked at', { status: 'quarantined', processed_at: null }],
  ])('%s: %s', async (superseded, _, columns) => {
    await insertEvent(pool, 'evt_other', { ...later, ...columns })
    await deliver('created', 1623979265)

    await service.drain()

    expect(told()).toEqual([['customer.subscription.created', superseded]])
  })

  test.each([
    [true, 'a confirmed one', { status: 'processed' }],
    [false, 'one that was not confirmed', { status: 'ignored', error: 'not confirmed' }],
    [false, 'one that no rule asked for', { status: 'ignored' }],
  ])('where nothing of the event is signed, %s: by %s', async (superseded, _, columns) => {
    const told: boolean[] = []
    service.config.current = readConfig({
      sources: { xendit: { provider: 'xendit', secrets: ['xnd-token-1'] } },
      followUps: [
        {
          source: 'xendit',
          type: 'payment.succeeded',
          email: (_event: unknown, meta: EventMeta) => void told.push(meta.superseded),
        },
      ],
    })
    onTestFinished(() => {
      service.config.current = config
    })
    const payment = { object_ref: 'py-1', occurred_at: new Date('2099-01-01T00:00:00Z'), livemode: null }
    await insertEvent(pool, 'forged', { source: 'xendit', ...payment, ...columns })
    const body = '{"event":"payment.succeeded","created":"2026-09-21T14:13:05.000Z","data":{"id":"py-1"}}'
    await post('/webhooks/xendit', body, { 'x-callback-token': 'xnd-token-1', 'webhook-id': 'w1' })

    await service.drain()

    expect(told).toEqual([superseded])
  })

  test('not when it has no time itself', async () => {
    await insertEvent(pool, 'evt_other', later)
    await deliver('created', undefined)

    await service.drain()

    expect(told()).toEqual([['customer.subscription.created', false]])
  })
})

describe("an object's events", () => {
  const of = (second: number, columns: object = {}) => ({
    object_ref: 'sub_1',
    livemode: true,
    occurred_at: new Date(Date.UTC(2021, 5, 18, 1, 21, second)),
    ...columns,
  })
  const listed = async (id: string) => (await findEvent(pool, id))?.object?.events.map((event) => event.event_id)

  test('are listed newest first, those of one time by their arrival, and without a time last', async () => {
    for (const [id, columns] of [
      ['evt_timeless', of(0, { occurred_at: null })],
      ['evt_3', of(3)],
      ['evt_1', of(1)],
      ['evt_3_too', of(3)],
      ['evt_elsewhere', of(9, { source: 'stripe-b' })],
      ['evt_other', of(9, { object_ref: 'sub_2' })],
      ['evt_test', of(9, { livemode: false })],
      ['evt_unseen', of(9, { status: 'quarantined', processed_at: null })],
    ] as const)
      await insertEvent(pool, id, columns)
    const id = await insertEvent(pool, 'evt_2', of(2, { status: 'failed', processed_at: null }))

    expect(await listed(id)).toEqual(['evt_3_too', 'evt_3', 'evt_2', 'evt_1', 'evt_timeless'])
  })

  test('are fifty at most, the newest', async () => {
    for (let second = 0; second < 52; second += 1) await insertEvent(pool, `evt_${second}`, of(second))
    const id = (await storedEvents(database))[0]?.id ?? ''

    expect(await listed(id)).toEqual(Array.from({ length: 50 }, (_, index) => `evt_${51 - index}`))
  })

  test('are none where the event names no object', async () => {
    expect((await findEvent(pool, await insertEvent(pool, 'evt_1')))?.object).toBeNull()
  })

  test('are shown by the command, the text of strangers as text', async () => {
    await insertEvent(pool, 'evt_new', of(3, { type: 'a\u001b[2J' }))
    const id = await insertEvent(pool, 'evt_old', of(1, { type: null }))
    const other = (await storedEvents(database))[0]?.id

    const { stdout } = await showEventCommand(pool, id, { width: 100, unicode: true })

    expect(stdout).toContain(
      [
        'Object sub_1, its newest event first:',
        `  2021-06-18 01:21:03 UTC  a<U+001B>[2J  evt_new  event ${other}`,
        `  2021-06-18 01:21:01 UTC  –  evt_old  event ${id} (this one)`,
        '',
      ].join('\n'),
    )
  })
})
