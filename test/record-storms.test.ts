import type pg from 'pg'
import { beforeEach, expect, test } from 'vitest'
import { createRecorder } from '../src/events/record.ts'
import { countRedeliveries, type Delivery } from '../src/events/store.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createProvider } from '../src/providers/registry.ts'
import { testDatabase } from './support/database.ts'
import { deliveryOf } from './support/deliveries.ts'
import { emptyTables, storedEvents } from './support/posting.ts'

const database = await testDatabase()
const jobs = await openJobs(database.url)
const provider = createProvider('stripe')

/** The names of the statements that the recorder has run; what it throws fails the next one of that name. */
const ran: string[] = []
let fault: { name: string; error: Error } | undefined
const pool = {
  query: (config: string | pg.QueryConfig, values?: unknown[]) => {
    const name = typeof config === 'string' ? config : config.name
    ran.push(name ?? '')
    if (fault !== undefined && fault.name === name) return Promise.reject(fault.error)
    return typeof config === 'string' ? database.pool.query(config, values) : database.pool.query(config)
  },
} as pg.Pool // the recorder asks it for nothing else

const ids = Array.from({ length: 20 }, (_, index) => `evt_${index}`)

/** A recorder to which all events were delivered, and then once more. */
async function recorderInStorm() {
  const recorder = createRecorder(pool, jobs)
  const deliver = (deliveries: readonly Delivery[]) =>
    Promise.all(
      deliveries.map((delivery) =>
        recorder.record(delivery, provider).then(
          (events) => events.map(({ status }) => status).join(),
          (error: Error) => error.name,
        ),
      ),
    )
  await deliver(ids.map((id) => deliveryOf(id)))
  await deliver(ids.map((id) => deliveryOf(id)))
  ran.length = 0
  return deliver
}

beforeEach(async () => {
  fault = undefined
  await emptyTables(database)
})

test('a storm of redeliveries is counted without trying to insert them', async () => {
  const deliver = await recorderInStorm()

  const answers = await deliver(ids.map((id) => deliveryOf(id)))

  expect(new Set(answers)).toEqual(new Set(['duplicate']))
  expect((await storedEvents(database)).map(({ redeliveries }) => redeliveries)).toEqual(Array(20).fill(2))
  expect(new Set(ran)).toEqual(new Set(['count-redeliveries']))
})

test('new events amid a storm are recorded once each, and the storm is over', async () => {
  const deliver = await recorderInStorm()

  const answers = await deliver([...ids, 'new_1', 'new_2', 'new_1'].map((id) => deliveryOf(id)))
  ran.length = 0
  await deliver([deliveryOf('new_3')])

  expect(answers).toEqual([...Array(20).fill('duplicate'), 'accepted', 'accepted', 'duplicate'])
  expect((await storedEvents(database)).map(({ event_id, redeliveries }) => `${event_id} ${redeliveries}`).sort()).toEqual(
    [...ids.map((id) => `${id} 2`), 'new_1 1', 'new_2 0', 'new_3 0'].sort(),
  )
  expect(ran).toEqual(['insert-events-1'])
})

test('other content under a held ID is kept in a storm too', async () => {
  const deliver = await recorderInStorm()

  const answers = await deliver(ids.map((id) => deliveryOf(id, `{"id":"${id}","other":true}`)))

  expect(new Set(answers)).toEqual(new Set(['duplicate']))
  const { rows } = await database.pool.query('select count(*)::int as count from webhook_conflicts')
  expect(rows).toEqual([{ count: 20 }])
})

test('I4 nothing is acknowledged in a storm when storage goes away', async () => {
  const deliver = await recorderInStorm()
  fault = { name: 'count-redeliveries', error: new Error('Connection terminated unexpectedly') }

  expect(new Set(await deliver(ids.map((id) => deliveryOf(id))))).toEqual(new Set(['NotRecorded']))
  fault = undefined
  expect(new Set(await deliver(ids.map((id) => deliveryOf(id))))).toEqual(new Set(['duplicate']))
  expect((await storedEvents(database)).map(({ redeliveries }) => redeliveries)).toEqual(Array(20).fill(2))
})

test('copies of one event in one batch are counted each', async () => {
  const deliver = await recorderInStorm()

  const answers = await deliver(['evt_3', 'evt_7', 'evt_3', 'evt_3'].map((id) => deliveryOf(id)))

  expect(answers).toEqual(Array(4).fill('duplicate'))
  const stored = await storedEvents(database)
  expect(stored.map(({ event_id, redeliveries }) => `${event_id} ${redeliveries}`).sort()).toEqual(
    ids.map((id) => `${id} ${id === 'evt_3' ? 4 : id === 'evt_7' ? 2 : 1}`).sort(),
  )
  expect(ran).toEqual(['count-redeliveries'])
})

test('C-34 batches with the same events in opposite order are counted at once, without a deadlock', async () => {
  const many = Array.from({ length: 100 }, (_, index) => `evt_${index}`)
  const recorder = createRecorder(pool, jobs)
  await Promise.all(many.map((id) => recorder.record(deliveryOf(id), provider)))
  const items = many.flatMap((id) => {
    const delivery = deliveryOf(id)
    return delivery.events.map((event) => ({ delivery, event, provider }))
  })

  // The first two make the rows of the counts, the others find them.
  for (let round = 0; round < 20; round += 1)
    await Promise.all([items, items.toReversed()].map((batch) => countRedeliveries(database.pool, batch)))

  expect((await storedEvents(database)).map(({ redeliveries }) => redeliveries)).toEqual(Array(100).fill(40))
})

test('a storm that meets a deadlock is recorded as if there were none', async () => {
  const deliver = await recorderInStorm()
  const query = pool.query
  let isFirst = true
  pool.query = ((config: pg.QueryConfig) => {
    if (config.name === 'count-redeliveries' && isFirst) {
      isFirst = false
      return Promise.reject(Object.assign(new Error('deadlock detected'), { code: '40P01' }))
    }
    return query(config)
  }) as pg.Pool['query']

  const answers = await deliver(ids.map((id) => deliveryOf(id)))
  pool.query = query

  expect(new Set(answers)).toEqual(new Set(['duplicate']))
  expect((await storedEvents(database)).map(({ redeliveries }) => redeliveries)).toEqual(Array(20).fill(2))
})
