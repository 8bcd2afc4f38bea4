import { expect, test } from 'vitest'
import { batchEvents } from '../src/follow-ups/event-batches.ts'
import { gathered } from '../src/follow-ups/gather.ts'
import { findPending } from '../src/follow-ups/stored-event.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertFollowUp } from './support/ops-rows.ts'

const { pool } = await testDatabase()
const waiting = { status: 'pending', processed_at: null }
const eventOf = async (id: string) => {
  const [event] = await findPending(pool, [id])
  if (!event) throw new Error('it does not wait')
  return event
}
const rowsOf = async (ids: readonly string[]) =>
  (
    await pool.query(
      'select status, error, processed_at is not null as is_closed from webhook_events where id = any ($1) order by id',
      [ids],
    )
  ).rows

test('events that are closed at the same time are closed together, each as it ends, with what it names', async () => {
  const ids = [await insertEvent(pool, 'evt_a', waiting), await insertEvent(pool, 'evt_b', waiting)]
  await insertFollowUp(pool, ids[0] ?? '', null, { outcome: 'failed', error: 'no such field' })
  await insertFollowUp(pool, ids[1] ?? '', null, { rule: 'held', outcome: 'held' })
  const statements: string[] = []
  const batches = batchEvents({
    query: (config, values) => {
      statements.push(typeof config === 'string' ? config : (config.name ?? ''))
      return pool.query(config as string, values as unknown[]) // the pool takes both
    },
  })
  const [first, second] = [await eventOf(ids[0] ?? ''), await eventOf(ids[1] ?? '')]

  await Promise.all([
    batches.close(first, { status: 'processed', error: null }, ['in_1', 'cus_1']),
    batches.close(second, { status: 'ignored', error: 'not confirmed' }, ['cus_1']),
  ])

  expect(statements).toEqual(['close-events'])
  expect(await rowsOf(ids)).toEqual([
    { status: 'processed', error: null, is_closed: true },
    { status: 'ignored', error: 'not confirmed', is_closed: true },
  ])
  expect((await pool.query('select outcome from follow_ups')).rows).toEqual([{ outcome: 'held' }])
  expect((await pool.query('select ref, event_id from event_refs order by ref, event_id')).rows).toEqual([
    { ref: 'cus_1', event_id: ids[0] },
    { ref: 'cus_1', event_id: ids[1] },
    { ref: 'in_1', event_id: ids[0] },
  ])
})

test('an event that another worker was first with stays as that one has left it', async () => {
  const id = await insertEvent(pool, 'evt_first', waiting)
  const event = await eventOf(id)
  await pool.query(`update webhook_events set status = 'failed', error = 'by hand' where id = $1`, [id])
  const batches = batchEvents(pool)

  await batches.close(event, { status: 'processed', error: null }, [])

  expect(await rowsOf([id])).toEqual([{ status: 'failed', error: 'by hand', is_closed: false }])
})

test('two processes that close the same events at once, in different order, both come through', async () => {
  const ids = await Promise.all(Array.from({ length: 40 }, (_, index) => insertEvent(pool, `evt_both_${index}`, waiting)))
  const events = await Promise.all(ids.map(eventOf))
  const close = (order: typeof events) => {
    const batches = batchEvents(pool)
    return Promise.all(order.map((event) => batches.close(event, { status: 'processed', error: null }, [`ref_${event.id}`])))
  }

  await Promise.all([close(events), close(events.toReversed()), close(events)])

  expect(await rowsOf(ids)).toEqual(Array(40).fill({ status: 'processed', error: null, is_closed: true }))
})

test('an event that the database refuses to close fails alone, and its neighbours are closed', async () => {
  const ids = [await insertEvent(pool, 'evt_good', waiting), await insertEvent(pool, 'evt_bad', waiting)]
  const [good, bad] = [await eventOf(ids[0] ?? ''), await eventOf(ids[1] ?? '')]
  const batches = batchEvents(pool)

  const ends = await Promise.allSettled([
    batches.close(good, { status: 'processed', error: null }, ['in_2']),
    batches.close(bad, { status: 'processed', error: null }, ['x'.repeat(201)]),
  ])

  expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
  expect(await rowsOf(ids)).toEqual([
    { status: 'processed', error: null, is_closed: true },
    { status: 'pending', error: null, is_closed: false },
  ])
})

test('bodies that are large together are fetched one by one, and are whole', async () => {
  const bodies = [3, 3, 1].map((megabytes, index) => Buffer.alloc(megabytes * 1024 * 1024, index + 65))
  const ids = await Promise.all(bodies.map((body, index) => insertEvent(pool, `evt_large_${index}`, { ...waiting, body })))
  const gone = '999999999'

  const found = await findPending(pool, [...ids, gone])

  expect(found.map((event) => event?.id)).toEqual([...ids, undefined])
  expect(found.slice(0, 3).map((event, index) => event?.body?.equals(bodies[index] as Buffer))).toEqual([true, true, true])
})

test('what is asked for while a statement is under way gathers for the next, and nothing is forgotten', async () => {
  const calls: number[] = []
  const double = gathered(8, async (items: readonly number[]) => {
    calls.push(items.length)
    await new Promise(setImmediate)
    return items.map((item) => item * 2)
  })
  // Each asks again a few steps after it is answered, one of them just when the one before is at its end.
  const chain = async (steps: number): Promise<number[]> => {
    const answers: number[] = []
    for (let item = 0; item < 10; item += 1) {
      answers.push(await double(item))
      for (let step = 0; step < steps; step += 1) await Promise.resolve()
    }
    return answers
  }

  for (let steps = 0; steps < 12; steps += 1) expect(await chain(steps)).toEqual([0, 2, 4, 6, 8, 10, 12, 14, 16, 18])
  await Promise.all([chain(0), chain(1), chain(2)])

  expect(Math.max(...calls)).toBe(3)
})
