import { setImmediate as immediate } from 'node:timers/promises'
import type pg from 'pg'
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { openPool } from '../src/db.ts'
import { NotRecorded } from '../src/events/batch.ts'
import { createRecorder } from '../src/events/record.ts'
import { createProvider } from '../src/providers/registry.ts'
import { testDatabase } from './support/database.ts'
import { deliveryOf } from './support/deliveries.ts'
import { type Answer, countRows, emptyTables, holdInserts, type Ingest, ingest, signed, storedEvents } from './support/posting.ts'

const database = await testDatabase()
const service = await ingest(database)
beforeEach(() => emptyTables(database))

const postEvent = ({ post }: Pick<Ingest, 'post'>, id: string) => {
  const body = JSON.stringify({ id })
  return post('/webhooks/generic', body, signed.generic(body))
}
const told = (answer: Answer) => [answer.status, answer.json.code ?? answer.json.status]
const refused = [503, 'storage_unavailable']

describe('deliveries that wait for storage', () => {
  test('are refused after about a second, with Retry-After and nothing stored; the one under way is accepted', async () => {
    const held = await holdInserts(database.url)
    const underWay = postEvent(service, 'e1')
    await expect.poll(held.waiting, { interval: 5 }).toBe(1)

    const waiting = await Promise.all(['e2', 'e3', 'e4'].map((id) => postEvent(service, id)))
    await held.release()

    expect(waiting.map(told)).toEqual([refused, refused, refused])
    for (const { headers } of waiting) expect(headers['retry-after']).toMatch(/^[2-9]$/)
    expect(told(await underWay)).toEqual([200, 'accepted'])
    expect((await storedEvents(database)).map((event) => event.event_id)).toEqual(['e1'])
    expect(told(await postEvent(service, 'e2'))).toEqual([200, 'accepted'])
  })

  test('are refused when the statement takes longer than its pool allows', async () => {
    const pool = openPool({ url: database.url, name: 'hasty', max: 2, statementTimeout: 200 })
    const hasty = await ingest({ url: database.url, pool })
    const held = await holdInserts(database.url)

    const answer = await postEvent(hasty, 'e1')
    await held.release()

    expect(told(answer)).toEqual(refused)
    expect(told(await postEvent(hasty, 'e1'))).toEqual([200, 'accepted'])
    await pool.end()
  })

  const provider = createProvider('stripe')
  test('I18 their delay is the age of the oldest that is not committed, in a batch or before one', async () => {
    let now = 1_000
    vi.spyOn(performance, 'now').mockImplementation(() => now)
    onTestFinished(() => void vi.restoreAllMocks())
    const commits: ((ids: string[]) => void)[] = []
    // Its rows come to a query one by one.
    const query = (insert: { handleDataRow(row: { fields: string[] }): void }) =>
      new Promise<void>((done) =>
        commits.push((ids) => {
          for (const id of ids) insert.handleDataRow({ fields: ['stripe', id] })
          done()
        }),
      )
    const pool = { query } as unknown as pg.Pool // the recorder asks it for nothing else
    const recorder = createRecorder(pool, { eventJobsInsert: '', wake: '' })
    const deliver = async (id: string, at: number) => {
      now = at
      const recorded = recorder.record(deliveryOf(id), provider)
      await immediate()
      return { recorded }
    }
    expect(recorder.delayMs()).toBe(0)

    const first = await deliver('a', 1_000)
    now = 1_030
    expect(recorder.delayMs()).toBe(30)
    const [second, third] = [await deliver('b', 1_040), await deliver('c', 1_060)]
    expect(recorder.delayMs()).toBe(60)
    commits[0]?.(['a'])
    await first.recorded
    await immediate()

    expect(commits).toHaveLength(2)
    now = 1_100
    expect(recorder.delayMs()).toBe(60)
    commits[1]?.(['b', 'c'])
    await Promise.all([second.recorded, third.recorded])
    await immediate()
    expect(recorder.delayMs()).toBe(0)
  })

  test('I18 are refused at once beyond their number', async () => {
    const held = await holdInserts(database.url)
    const recorded = [service.recorder.record(deliveryOf('first'), provider)]
    // Two batches are on their way by then: the first alone, and one of 128 from the moment that many wait.
    for (let index = 0; index < 2_500; index += 1) recorded.push(service.recorder.record(deliveryOf(`e${index}`), provider))
    const settled = Promise.allSettled(recorded)

    const last = await recorded.at(-1)?.catch((error: unknown) => error)
    const stored = (await countRows(database))?.events
    await held.release()

    expect(last).toBeInstanceOf(NotRecorded)
    expect(stored).toBe(0)
    const refusals = (await settled).filter((each) => each.status === 'rejected')
    expect(refusals.length).toBeGreaterThanOrEqual(2_501 - 2_000 - 2 * 128)
    expect(new Set(refusals.map((each) => each.reason.name))).toEqual(new Set(['NotRecorded']))
    expect((await countRows(database))?.events).toBe(2_501 - refusals.length)
  })

  test('I18 are refused at once beyond their bytes', async () => {
    const held = await holdInserts(database.url)
    const big = Buffer.alloc(33 * 1024 * 1024)
    const first = service.recorder.record(deliveryOf('first'), provider)
    await expect.poll(held.waiting, { interval: 5 }).toBe(1)

    // The first big one goes into a second batch at once.
    const recorded = [deliveryOf('b1', big), deliveryOf('b2', big), deliveryOf('b3', big), deliveryOf('small')].map((delivery) =>
      service.recorder.record(delivery, provider).then(
        () => 'accepted',
        (error: Error) => error.message,
      ),
    )
    const atOnce = await Promise.all(recorded.map((each) => Promise.race([each, immediate('waiting')])))
    await held.release()
    await Promise.all([first, ...recorded])

    expect(atOnce).toEqual(['waiting', 'waiting', 'too much is waiting', 'waiting'])
  })
})

describe('C-51 a database that is away', () => {
  test('is a 503 to what is signed, and a 401 to what is not', async () => {
    const pool = openPool({ url: 'postgres://nobody@127.0.0.1:1/nothing', name: 'away', max: 2 })
    const away = await ingest({ url: database.url, pool })

    const answers = await Promise.all(Array.from({ length: 50 }, (_, index) => postEvent(away, `e${index}`)))
    const unsigned = await away.post('/webhooks/generic', '{"id":"e1"}')
    await pool.end()

    expect(answers.map(told)).toEqual(answers.map(() => refused))
    expect(unsigned.status).toBe(401)
    expect(new Set(away.logged.map((line) => line.level))).toEqual(new Set(['warn', 'info']))
  })

  test('is a 503 when no connection comes free, and then takes the event again', async () => {
    const pool = openPool({ url: database.url, name: 'taken', max: 1 })
    const taken = await ingest({ url: database.url, pool })
    const connection = await pool.connect()

    const answer = await postEvent(taken, 'e1')
    connection.release()

    expect(told(answer)).toEqual(refused)
    expect(told(await postEvent(taken, 'e1'))).toEqual([200, 'accepted'])
    await pool.end()
  })
})
