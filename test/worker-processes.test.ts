import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { afterAll, expect, test, vi } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { triggerSend } from '../src/sends/trigger.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, postPayment, quick, type Running, start, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 90_000 })

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
afterAll(() => sandbox.close())

// Where the rule for addresses that begin with "slow-" waits for an answer.
const waiting: ServerResponse[] = []
const ruleServer = createServer((_req, res) => void waiting.push(res)).listen(0, '127.0.0.1')
await once(ruleServer, 'listening')
afterAll(() => {
  ruleServer.close()
  ruleServer.closeAllConnections()
})

const environment = {
  ...quick,
  DATABASE_URL: databaseUrl,
  INBOXILI_BASE_URL: sandbox.url,
  TEST_RULE_URL: `http://127.0.0.1:${(ruleServer.address() as AddressInfo).port}`,
}
const jobs = await openJobs(databaseUrl)

// A start costs a second of the machine, so a test leaves a worker that it no longer needs to the next.
let spare: Running | undefined
const oneWorker = async () => {
  const worker = spare ?? (await start('worker', environment))
  spare = undefined
  return worker
}

const queueSends = (emails: readonly string[]) =>
  inTransaction(pool, async (tx) => {
    for (const to of emails) {
      await triggerSend(tx, jobs.enqueueSends, {
        key: `test:${to}`,
        policy: 'claim',
        message: { to, from_email: 'billing@example.com', subject: 'Hello', html_body: '<p>Hello</p>' },
        sourceEvent: undefined,
        requestedBy: 'token:test',
      })
    }
  })

const numbered = (prefix: string, count: number) => Array.from({ length: count }, (_, index) => `${prefix}-${index}@example.com`)
const callsTo = (prefix: string) => sandbox.ledger.filter((call) => call.to?.startsWith(`${prefix}-`))

async function states(prefix: string): Promise<Record<string, number>> {
  const { rows } = await pool.query<{ state: string; count: number }>(
    'select state, count(*)::int from email_sends where starts_with(recipient, $1) group by state order by state',
    [`${prefix}-`],
  )
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]))
}

const end = async (running: Running) => {
  running.kill('SIGTERM')
  return (await running.exited).code
}

test('C-59 four workers make one call each for a hundred waiting sends, and one when all their senders race for it', async () => {
  const emails = numbered('c59', 100)
  sandbox.arm({ kind: 'hold', ms: 500 }, { times: 'always' })
  await queueSends(emails)

  const workers = await Promise.all([1, 2, 3, 4].map(() => start('worker', environment)))
  await until(async () => (await states('c59')).sent === 100, 'all are sent')
  // The queue may hand out a job twice. Here all the senders get one of the same send, and race for it from the same line.
  const line = await pool.connect()
  await line.query('begin; select from rate_slots for update')
  await queueSends(['race-1@example.com'])
  const key = 'test:race-1@example.com'
  await inTransaction(pool, (tx) => jobs.enqueueSends(tx, Array(31).fill({ key })))
  await until(async () => {
    const { rows } = await pool.query(`select from pg_stat_activity where datname = current_database()
      and wait_event_type = 'Lock' and query like '%rate_slots%'`)
    return rows.length === 32
  }, 'all the senders are at the line')
  await line.query('rollback')
  line.release()
  await until(async () => {
    const { rows } = await pool.query(`select from pgboss.job where data ->> 'key' = $1 and state < 'completed'`, [key])
    return rows.length === 0
  }, 'the race is over')
  sandbox.disarm()
  spare = workers.pop()
  const ends = await Promise.all(workers.map(end))

  expect(callsTo('c59').length).toBe(100)
  expect(new Set(callsTo('c59').map(({ to }) => to)).size).toBe(100)
  expect(callsTo('race').length).toBe(1)
  expect(ends).toEqual([0, 0, 0])
})

let serving: Promise<Running> | undefined
const serveProcess = () => {
  serving ??= start('serve', environment)
  return serving
}

test('C-60 what a killed worker held is taken over within 30 s: the event is processed, the open call is left to a person', async () => {
  const [serve, first] = await Promise.all([serveProcess(), oneWorker()])
  sandbox.arm({ kind: 'hold' }, { to: 'c60-held@example.com' })
  await queueSends(['c60-held@example.com'])
  await postPayment(serve.url, 'c60-event', { email: 'slow-c60@example.com' })
  await until(() => callsTo('c60').length === 1 && waiting.length === 1, 'the worker holds an open call and an event')

  first.kill('SIGKILL')
  const killedAt = performance.now()
  await first.exited
  // With a threshold that it has not reached, its claim is left alone: by a sweep that does find a send without a job.
  await queueSends(['orphan-c60@example.com'])
  await pool.query(`delete from pgboss.job where data ->> 'key' = 'test:orphan-c60@example.com'`)
  const patient = await start('worker', environment)
  await until(async () => (await states('orphan')).sent === 1, 'a sweep has been')
  const early = await states('c60')
  const second = await start('worker', { ...environment, ONCEHOOK_STALE_AFTER_MS: '1000' })
  await until(async () => (await states('c60')).needs_review === 1, 'the open call is in front of a person', 5_000)
  await until(() => waiting.length === 2, 'another worker runs the rule', 30_000)
  for (const res of waiting.splice(0)) res.end()
  await until(async () => {
    const { rows } = await pool.query(`select from pgboss.job where state < 'completed'`)
    return rows.length === 0
  }, 'no job is left')
  const takenOverAfter = performance.now() - killedAt
  sandbox.releaseHeld()
  await end(second)
  spare = patient

  expect(early).toEqual({ sending: 1 })
  expect(takenOverAfter).toBeLessThan(30_000)
  expect(callsTo('c60').length).toBe(1)
  const { rows: sends } = await pool.query(
    `select recipient, state, last_error from email_sends where recipient ~ 'c60-held|slow-c60' order by recipient`,
  )
  expect(sends).toEqual([
    { recipient: 'c60-held@example.com', state: 'needs_review', last_error: 'worker stopped during send' },
    { recipient: 'slow-c60@example.com', state: 'sent', last_error: null },
  ])
  const warned = [...patient.log(), ...second.log()].filter(({ msg }) => String(msg).startsWith('sends need a decision'))
  expect(warned).toEqual([expect.objectContaining({ level: 'warn', sends: 1 })])
})

test('C-61 SIGTERM drains acknowledgements and sends, past idle connections and SIGHUP, and the next process does the rest', async () => {
  const [serve, worker] = await Promise.all([serveProcess(), oneWorker()])
  const { port } = new URL(serve.url)
  const sockets = await Promise.all(
    Array.from({ length: 10 }, async (_, index) => {
      const socket = connect(Number(port), '127.0.0.1')
      // One has never sent anything.
      if (index === 0) return once(socket, 'connect').then(() => socket)
      socket.write('GET /healthz HTTP/1.1\r\nHost: oncehook\r\n\r\n')
      await once(socket, 'data')
      return socket
    }),
  )
  const closed = sockets.map((socket) => once(socket.resume(), 'close'))
  sandbox.arm({ kind: 'hold' }, { times: 8 })
  const acks = await Promise.all(numbered('c61', 40).map((email, index) => postPayment(serve.url, `c61-${index}`, { email })))
  await until(async () => {
    const { sending, queued } = await states('c61')
    return sending === 8 && queued === 32
  }, 'the worker has all the calls open that it makes at once')
  // Acknowledgements under way: their commit has to wait.
  const blocker = await pool.connect()
  await blocker.query('begin; lock table webhook_events in share mode')
  const underWay = numbered('c61-late', 5).map((email, index) => postPayment(serve.url, `c61-late-${index}`, { email }))
  await until(async () => {
    const { rows } = await pool.query(`select from pg_locks join pg_stat_activity using (pid) where not granted
      and datname = current_database() and application_name = 'oncehook-ingest'`)
    return rows.length > 0
  }, 'an acknowledgement waits')

  serve.kill('SIGTERM')
  worker.kill('SIGTERM')
  const signalledAt = performance.now()
  await until(() => [serve, worker].every((it) => it.log().some(({ msg }) => msg === 'stopping')), 'both are stopping')
  // Without its listener it would end them at once.
  for (const it of [serve, worker]) it.kill('SIGHUP')
  await until(
    () => [serve, worker].every((it) => it.log().some(({ msg }) => msg === 'configuration read again')),
    'SIGHUP is seen',
  )
  await blocker.query('rollback')
  blocker.release()
  const late = await Promise.all(underWay)
  sandbox.releaseHeld()
  const ends = await Promise.all([serve.exited, worker.exited])
  const drainedAfter = performance.now() - signalledAt
  await Promise.all(closed)
  const callsThen = callsTo('c61').length
  const statesThen = await states('c61')
  const next = await start('worker', environment)
  await until(async () => (await states('c61')).sent === 45, 'the next worker has sent the rest')
  await end(next)

  expect([...acks, ...late].map(({ status }) => status)).toEqual(Array(45).fill(200))
  expect(ends).toEqual([
    { code: 0, signal: null },
    { code: 0, signal: null },
  ])
  expect(drainedAfter).toBeLessThan(5_000)
  expect(callsThen).toBe(8)
  expect(statesThen).toEqual({ queued: 32, sent: 8 })
  expect(callsTo('c61').length).toBe(45)
  expect(new Set(callsTo('c61').map(({ to }) => to)).size).toBe(45)
})
