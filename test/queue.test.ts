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
})

test('fifteen events whose rules hang hold up no other', async () => {
  const hanging = Promise.withResolvers<void>()
  const begun: string[] = []
  const done: string[] = []
  const workers = await startWorkers(
    url,
    {
      processEvent: async (event) => {
        begun.push(event)
        if (event.startsWith('hanging')) await hanging.promise
        done.push(event)
      },
      send: async () => undefined,
    },
    1_000,
    log,
  )
  const numbered = (name: string, count: number) => Array.from({ length: count }, (_, index) => `${name}-${index}`)
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, numbered('hanging', 15)))
  await until(() => begun.length === 15, 'all that hang have begun')
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, numbered('quick', 50)))
  await until(() => done.length === 50, 'the others are done')
  const doneThen = [...done]
  hanging.resolve()
  await workers.stop(10_000)

  expect(doneThen.filter((event) => event.startsWith('hanging'))).toEqual([])
  const { rows } = await pool.query(
    `select state, count(*)::int from pgboss.job where data ->> 'event' ~ 'hanging|quick' group by state`,
  )
  expect(rows).toEqual([{ state: 'completed', count: 65 }])
  await pool.query('delete from pgboss.job')
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
    await jobs.enqueueEvents(tx, ['rolled-back'])
    await jobs.enqueueSends(tx, [{ key: 'rolled-back' }])
    throw new Error('no')
  }).catch(() => undefined)

  const { rows } = await pool.query(`select from pgboss.job where data::text like '%rolled-back%'`)
  expect(rows.length).toBe(0)
})

test('a fresh job is fetched before a backlog that was there first, in both queues', async () => {
  const begun: string[] = []
  const urgencies: string[] = []
  const release = Promise.withResolvers<void>()
  const backlog = Array.from({ length: 50 }, (_, index) => `old-${index}`)
  await inTransaction(pool, async (tx) => {
    await jobs.enqueueSends(
      tx,
      backlog.map((key) => ({ key })),
    )
    await jobs.enqueueEvents(tx, backlog)
  })
  await inTransaction(pool, async (tx) => {
    await jobs.enqueueSends(tx, [{ key: 'fresh', urgency: 'fresh' }])
    await tx.query(`with new_jobs as (select json_build_object('event', 'new') as data) ${jobs.eventJobsInsert}`)
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
  // 8 workers with a send each, 16 with an event each: all hold what they fetched first.
  await until(() => begun.length === 24, 'every worker is busy')
  release.resolve()
  await workers.stop(10_000)

  expect(begun.slice(0, 24)).toEqual(expect.arrayContaining(['fresh', 'new']))
  expect(urgencies).toEqual(expect.arrayContaining(['new fresh', 'old-0 backlog']))
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
    await jobs.enqueueEvents(tx, ['again'])
  })
  await until(() => tries.length === 2, 'it is tried again')
  await inTransaction(pool, (tx) => jobs.enqueueSends(tx, [{ key: 'running' }]))
  await until(() => tries.length === 3, 'a send runs')

  const stopped = workers.stop(10_000).then(() => 'stopped')
  const first = await Promise.race([stopped, isStopping()])
  release.resolve()
  await stopped

  expect(first).toBe('still running')
  expect(tries).toEqual(['again false', 'again false', 'running'])
  const { rows } = await pool.query(
    `select data, state from pgboss.job where data::text ~ 'again|later|running' order by data::text`,
  )
  expect(rows).toEqual([
    { data: { event: 'again' }, state: 'completed' },
    { data: { key: 'later' }, state: 'created' },
    { data: { key: 'running' }, state: 'completed' },
  ])
})

/** A stop that has begun takes no new jobs: then this one is left for others. */
async function isStopping(): Promise<string> {
  await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, ['left']))
  await until(async () => {
    const { rows } = await pool.query(
      `select from pg_stat_activity where datname = current_database() and application_name = 'oncehook-listen'`,
    )
    return rows.length === 0
  }, 'it listens no more')
  return 'still running'
}
