import { beforeEach, describe, expect, test } from 'vitest'
import { openPool } from '../src/db.ts'
import { testDatabase } from './support/database.ts'
import { lineTo } from './support/line.ts'
import {
  type Answer,
  countRows,
  emptyTables,
  holdInserts,
  type Ingest,
  ingest,
  onInsert,
  refuse,
  signed,
  sources,
  storedEvents,
} from './support/posting.ts'

const database = await testDatabase()
const followUps = [{ source: 'generic', type: 'wanted', email: () => null }]
const service = await ingest(database, { sources, followUps })
const nothing = { events: 0, bodies: 0, conflicts: 0, jobs: 0, sends: 0 }
beforeEach(() => emptyTables(database))

const bodyOf = (id: string, more: object = {}) => JSON.stringify({ id, type: 'wanted', ...more })
const postEvent = ({ post }: Pick<Ingest, 'post'>, id: string, more: object = {}) => {
  const body = bodyOf(id, more)
  return post('/webhooks/generic', body, signed.generic(body))
}
const told = (answer: Answer) => [answer.status, answer.json.code ?? answer.json.status]

/** Makes these deliveries one batch: they gather behind one that waits for the database. */
async function postTogether(posts: readonly (() => Promise<Answer>)[]): Promise<Answer[]> {
  const before = service.arrived()
  const held = await holdInserts(database.url)
  const gate = postEvent(service, 'gate')
  await expect.poll(held.waiting, { interval: 5 }).toBe(1)
  const answers = posts.map((post) => post())
  await expect.poll(service.arrived, { interval: 5 }).toBe(before + 1 + posts.length)
  await held.release()
  await gate
  return Promise.all(answers)
}
const named = (...ids: string[]) => ids.map((id) => () => postEvent(service, id))
const manyIds = Array.from({ length: 40 }, (_, index) => `e${index + 10}`)

describe('a batch of concurrent deliveries', () => {
  test('shares one transaction', async () => {
    const answers = await postTogether(named(...manyIds))

    expect(answers.map(told)).toEqual(manyIds.map(() => [200, 'accepted']))
    const { rows } = await database.pool.query(
      `select count(*)::int as events, count(distinct xmin::text)::int as transactions from webhook_events where event_id <> 'gate'`,
    )
    expect(rows).toEqual([{ events: 40, transactions: 1 }])
  })

  test.each(['at once', 'at commit'] as const)('is not failed by one event that the database refuses %s', async (when) => {
    const refusing = await onInsert(database, refuse(`new.event_id = 'poison'`), when)

    const answers = await postTogether(named(...manyIds.slice(0, 20), 'poison', ...manyIds.slice(20)))
    await refusing.remove()

    expect(answers.map(told)).toEqual([
      ...Array(20).fill([200, 'accepted']),
      [503, 'storage_unavailable'],
      ...Array(20).fill([200, 'accepted']),
    ])
    expect((await storedEvents(database)).map((event) => event.event_id).sort()).toEqual([...manyIds, 'gate'])
    expect((await countRows(database))?.jobs).toBe(41)
  })

  test('tells a new event apart from a neighbour whose conflict could not be kept', async () => {
    await postEvent(service, 'known')
    await database.pool.query(`alter table webhook_conflicts add constraint refused check (body is null) not valid`)

    const answers = await postTogether([
      () => postEvent(service, 'new'),
      () => postEvent(service, 'known', { amount: 99 }),
      () => postEvent(service, 'known'),
    ])
    await database.pool.query('alter table webhook_conflicts drop constraint refused')

    expect(answers.map(told)).toEqual([
      [200, 'accepted'],
      [503, 'storage_unavailable'],
      [200, 'duplicate'],
    ])
  })

  test('with the same event twice, and once with another body, keeps one and the conflict', async () => {
    const answers = await postTogether([
      () => postEvent(service, 'twin'),
      () => postEvent(service, 'twin'),
      () => postEvent(service, 'twin', { amount: 99 }),
    ])

    expect(answers.map(told).sort()).toEqual([
      [200, 'accepted'],
      [200, 'duplicate'],
      [200, 'duplicate'],
    ])
    expect(await countRows(database)).toEqual({ ...nothing, events: 2, conflicts: 1, jobs: 2 })
  })
})

describe('C-45 a commit that fails', () => {
  test('is a 503 with Retry-After and stores nothing; the redelivery is accepted once', async () => {
    const refusing = await onInsert(database, refuse('true'), 'at commit')

    const failed = await postEvent(service, 'e1')
    const stored = await countRows(database)
    await refusing.remove()
    const again = [await postEvent(service, 'e1'), await postEvent(service, 'e1')]

    expect(told(failed)).toEqual([503, 'storage_unavailable'])
    expect(failed.headers['retry-after']).toMatch(/^[2-9]$/)
    expect(failed.headers['content-type']).toBe('application/problem+json; charset=utf-8')
    expect(failed.text).not.toContain('refused by the test')
    expect(stored).toEqual(nothing)
    expect(again.map(told)).toEqual([
      [200, 'accepted'],
      [200, 'duplicate'],
    ])
    expect(await countRows(database)).toEqual({ ...nothing, events: 1, jobs: 1 })
  })
})

describe('I4 a commit in doubt', () => {
  test('is a 503 to the whole batch when the backend is killed during the insert; each redelivery is accepted once', async () => {
    const ids = ['e1', 'e2', 'e3', 'e4', 'e5']
    const before = service.arrived()
    const held = await holdInserts(database.url)
    const alone = postEvent(service, 'alone')
    await expect.poll(held.waiting, { interval: 5 }).toBe(1)
    const batch = ids.map((id) => postEvent(service, id))
    await expect.poll(service.arrived, { interval: 5 }).toBe(before + 6)

    await held.terminate()
    const killed = [await alone]
    await expect.poll(held.waiting, { interval: 5 }).toBe(1)
    await held.terminate()
    killed.push(...(await Promise.all(batch)))
    await held.release()
    const again = await Promise.all([...ids, ...ids].map((id) => postEvent(service, id)))

    expect(killed.map(told)).toEqual(Array(6).fill([503, 'storage_unavailable']))
    expect(again.map((answer) => answer.json.status).sort()).toEqual([
      ...Array(5).fill('accepted'),
      ...Array(5).fill('duplicate'),
    ])
    expect(await countRows(database)).toEqual({ ...nothing, events: 5, jobs: 5 })
  })

  test('is a 503 when the answer to the commit is lost, and the redelivery is a duplicate', async () => {
    const line = await lineTo(database.url)
    const pool = openPool({ url: line.url, name: 'lossy', max: 1 })
    const lossy = await ingest({ url: database.url, pool })
    await postEvent(lossy, 'before')

    line.loseNextAnswer()
    const doubtful = await postEvent(lossy, 'e1')
    await expect.poll(async () => (await storedEvents(database)).length, { interval: 5 }).toBe(2)
    const again = await postEvent(lossy, 'e1')
    await pool.end()

    expect(told(doubtful)).toEqual([503, 'storage_unavailable'])
    expect(told(again)).toEqual([200, 'duplicate'])
    expect((await storedEvents(database)).map((event) => [event.event_id, event.redeliveries])).toEqual([
      ['before', 0],
      ['e1', 1],
    ])
  })
})
