import { expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { findEventsWithoutJob, findSendsWithoutJob, openJobs, startWorkers } from '../src/follow-ups/queue.ts'
import { createLog } from '../src/log.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertSend } from './support/ops-rows.ts'
import { until } from './support/processes.ts'

const { url, pool } = await testDatabase()
const jobs = await openJobs(url)
const log = createLog('silent', 'test')

const isListening = () =>
  until(async () => {
    const { rows } = await pool.query(
      `select from pg_stat_activity where datname = current_database() and application_name = 'oncehook-listen' and query like 'listen%'`,
    )
    return rows.length === 1
  }, 'the worker listens')

test('lone jobs are begun by their wake-up, also after the listening connection was lost', async () => {
  const done: string[] = []
  const workers = await startWorkers(
    url,
    { processEvent: async (event) => void done.push(event), send: async () => undefined },
    1_000,
    log,
  )
  await isListening()
  await pool.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
    and application_name = 'oncehook-listen'`)
  await isListening()
  const startedAt = performance.now()
  for (let event = 1; event <= 20; event += 1) {
    await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, [String(event)]))
    await until(() => done.length === event, 'the job is done')
  }
  const took = performance.now() - startedAt
  await workers.stop(1_000)

  expect(done).toEqual(Array.from({ length: 20 }, (_, index) => String(index + 1)))
  // The workers of this queue look by themselves once a second, so that twenty in a row would take about ten seconds.
  expect(took).toBeLessThan(5_000)
  await pool.query('delete from pgboss.job')
})

/** A worker whose events of one source hang until they are let go. */
async function withHanging(events: ReadonlySet<string>) {
  const hanging = Promise.withResolvers<void>()
  const begun: string[] = []
  const done: string[] = []
  const workers = await startWorkers(
    url,
    {
      processEvent: async (event) => {
        begun.push(event)
        if (events.has(event)) await hanging.promise
        done.push(event)
      },
      send: async () => undefined,
    },
    1_000,
    log,
  )
  return { begun, done, letGo: hanging.resolve, stop: () => workers.stop(10_000) }
}
const insertPending = (source: string, count: number) =>
  Promise.all(
    Array.from({ length: count }, (_, index) =>
      insertEvent(pool, `evt_${source}_${index}`, { source, status: 'pending', processed_at: null }),
    ),
  )

test('I18 sixty events of a source whose rules hang take its own places only, and those of others are worked on at once', async () => {
  const hanging = await insertPending('hanging', 60)
  const others = await insertPending('other', 50)
  const work = await withHanging(new Set(hanging))
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, hanging))
  await until(() => work.begun.length === 16, 'it has all the places that it may have')
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, others))
  const queuedAt = performance.now()
  await until(() => work.done.length === 50, 'the others are done')
  const took = performance.now() - queuedAt
  const doneThen = [...work.done]
  const begunThen = work.begun.filter((event) => hanging.includes(event)).length
  work.letGo()
  await until(() => work.done.length === 110, 'all are done')
  await work.stop()

  expect(doneThen.sort()).toEqual(others.sort())
  expect(begunThen).toBe(16)
  expect(took).toBeLessThan(5_000)
  expect(work.begun.length).toBe(110)
  const { rows } = await pool.query('select state, count(*)::int from pgboss.job group by state')
  expect(rows).toEqual([{ state: 'completed', count: 110 }])
  await pool.query('delete from pgboss.job; delete from webhook_events')
})

test('a job of the version before, which names no source, is worked on', async () => {
  const [event = ''] = await insertPending('old', 1)
  const work = await withHanging(new Set())
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, [event]))
  await pool.query('update pgboss.job set group_id = null')
  await until(() => work.done.length === 1, 'it is done')
  await work.stop()

  expect(work.done).toEqual([event])
  await pool.query('delete from pgboss.job; delete from webhook_events')
})

test('only what waits without an unfinished job is found by the sweeps', async () => {
  const [withJob, without, finished] = [
    await insertEvent(pool, 'evt_with', { status: 'pending', processed_at: null }),
    await insertEvent(pool, 'evt_without', { status: 'pending', processed_at: null }),
    await insertEvent(pool, 'evt_finished', { status: 'pending', processed_at: null }),
  ]
  for (const key of ['with', 'without', 'finished']) await insertSend(pool, key)
  await inTransaction(pool, async (tx) => {
    await jobs.enqueueEvents(tx, [withJob, finished])
    await jobs.enqueueSends(tx, [{ key: 'with' }, { key: 'finished' }])
  })
  await pool.query(`update pgboss.job set state = 'completed' where data ->> 'key' = 'finished' or data ->> 'event' = $1`, [
    finished,
  ])

  expect(await findEventsWithoutJob(pool)).toEqual([without, finished])
  expect((await findSendsWithoutJob(pool, 1_000)).sort()).toEqual(['finished', 'without'])
  await pool.query('delete from pgboss.job; delete from webhook_events; delete from email_sends')
})

test('a transaction that is rolled back leaves no job', async () => {
  await inTransaction(pool, async (tx) => {
    await jobs.enqueueEvents(tx, ['77'])
    await jobs.enqueueSends(tx, [{ key: 'rolled-back' }])
    throw new Error('no')
  }).catch(() => undefined)

  const { rows } = await pool.query(`select from pgboss.job where data ->> 'event' = '77' or data ->> 'key' = 'rolled-back'`)
  expect(rows.length).toBe(0)
})

test('a fresh job is fetched before a backlog that was there first, in both queues', async () => {
  const begun: string[] = []
  const urgencies: string[] = []
  const release = Promise.withResolvers<void>()
  const backlog = Array.from({ length: 200 }, (_, index) => String(index + 1))
  await inTransaction(pool, async (tx) => {
    await jobs.enqueueSends(
      tx,
      backlog.map((key) => ({ key })),
    )
    await jobs.enqueueEvents(tx, backlog)
  })
  await inTransaction(pool, async (tx) => {
    await jobs.enqueueSends(tx, [{ key: 'fresh', urgency: 'fresh' }])
    await tx.query(
      `with new_jobs as (select json_build_object('event', 'new') as data, 'stripe' as source) ${jobs.eventJobsInsert}`,
    )
  })
  const wait = async (name: string) => {
    begun.push(name)
    await release.promise
  }
  const workers = await startWorkers(
    url,
    {
      processEvent: (event, _isLastTry, urgency) => {
        urgencies.push(`${event} ${urgency}`)
        return wait(event)
      },
      send: wait,
    },
    1_000,
    log,
  )
  // A worker has places for 8 sends and 64 events: all hold what they fetched first.
  await until(() => begun.length === 72, 'every place is taken')
  release.resolve()
  await workers.stop(10_000)

  expect(begun.slice(0, 72)).toEqual(expect.arrayContaining(['fresh', 'new']))
  expect(urgencies).toEqual(expect.arrayContaining(['new fresh', '1 backlog']))
  await pool.query('delete from pgboss.job')
})

test('a job that fails is tried again, one that was put off is not begun early, and stopping waits for what runs', async () => {
  const tries: string[] = []
  const release = Promise.withResolvers<void>()
  const workers = await startWorkers(
    url,
    {
      processEvent: async (event, isLastTry) => {
        tries.push(`${event} ${isLastTry}`)
        if (tries.length === 1) throw new Error('not yet')
      },
      send: async (key) => {
        tries.push(key)
        await release.promise
      },
    },
    1_000,
    log,
  )
  await inTransaction(pool, async (tx) => {
    await jobs.enqueueSends(tx, [{ key: 'later', startAfter: new Date(Date.now() + 3_600_000) }])
    await jobs.enqueueEvents(tx, ['88'])
  })
  await until(() => tries.length === 2, 'it is tried again')
  await inTransaction(pool, (tx) => jobs.enqueueSends(tx, [{ key: 'running' }]))
  await until(() => tries.length === 3, 'a send runs')

  const stopped = workers.stop(10_000).then(() => 'stopped')
  const first = await Promise.race([stopped, isStopping()])
  release.resolve()
  await stopped

  expect(first).toBe('still running')
  expect(tries).toEqual(['88 false', '88 false', 'running'])
  const { rows } = await pool.query(
    `select data, state from pgboss.job where data ->> 'event' = '88' or data ->> 'key' in ('later', 'running') order by data::text`,
  )
  expect(rows).toEqual([
    { data: { event: '88' }, state: 'completed' },
    { data: { key: 'later' }, state: 'created' },
    { data: { key: 'running' }, state: 'completed' },
  ])
})

/** A stop that has begun takes no new jobs: then this one is left for others. */
async function isStopping(): Promise<string> {
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, ['99']))
  await until(async () => {
    const { rows } = await pool.query(
      `select from pg_stat_activity where datname = current_database() and application_name = 'oncehook-listen'`,
    )
    return rows.length === 0
  }, 'it listens no more')
  return 'still running'
}

/** A job that three events share, as those that come at once do. */
async function shareJob(): Promise<void> {
  await pool.query('delete from pgboss.job')
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, ['501']))
  await pool.query(
    `update pgboss.job set data = '{"events":[["501","request-1"],["502",null],["503","request-3"]]}', group_id = 'shop'`,
  )
}

test('I6 what is left of a shared job after its first try gets jobs of its own, with their requests', async () => {
  await shareJob()
  const begun: string[] = []
  const workers = await startWorkers(
    url,
    {
      processEvent: async (event, _isLastTry, _urgency, request) => {
        begun.push(`${event} ${request}`)
        if (event === '502' && begun.length < 4) throw new Error('not yet')
      },
      send: async () => undefined,
    },
    1_000,
    log,
  )
  const { rows } = await until(async () => {
    await pool.query(`update pgboss.job set start_after = now() where state = 'retry'`)
    const found = await pool.query<{ about: string }>(
      `select coalesce(data ->> 'event', 'shared') || ' ' || group_id || ' ' || retry_count as about from pgboss.job where state = 'completed' order by 1`,
    )
    return found.rows.length === 4 ? found : undefined
  }, 'all are done')
  await workers.stop(1_000)

  expect(rows.map(({ about }) => about)).toEqual(['501 shop 0', '502 shop 0', '503 shop 0', 'shared shop 1'])
  expect(begun.slice(0, 3)).toEqual(['501 request-1', '502 undefined', '503 request-3'])
  expect(begun.slice(3).sort()).toEqual(['501 request-1', '502 undefined', '503 request-3'])
  await pool.query('delete from pgboss.job')
})

test('I6 a worker that stops begins no further event of a shared job, and gives it back', async () => {
  await shareJob()
  const hanging = Promise.withResolvers<void>()
  const begun: string[] = []
  const workers = await startWorkers(
    url,
    {
      processEvent: async (event) => {
        begun.push(event)
        await hanging.promise
      },
      send: async () => undefined,
    },
    1_000,
    log,
  )
  await until(() => begun.length === 1, 'the first is begun')
  const stopped = workers.stop(5_000)
  hanging.resolve()
  await stopped

  expect(begun).toEqual(['501'])
  expect((await pool.query('select state from pgboss.job')).rows).toEqual([{ state: 'retry' }])
  await pool.query('delete from pgboss.job')
})
