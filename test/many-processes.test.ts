import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test, vi } from 'vitest'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, isAlive, payment, postPayment, quick, type Running, spawnEntry, start, until } from './support/processes.ts'

// Some twenty processes start one after the other, each of which may take ten seconds on a busy machine.
vi.setConfig({ testTimeout: 300_000 })

/** A process that ends and one that starts in its place, on a busy machine. */
const RESTART_MS = 60_000

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
afterAll(() => sandbox.close())
const environment = { ...quick, DATABASE_URL: databaseUrl, INBOXILI_BASE_URL: sandbox.url }

/** The processes that answer, by their log lines. */
const listening = (serve: Running) => serve.log().flatMap(({ msg, pid }) => (msg === 'listening' ? [Number(pid)] : []))
const metric = (text: string, name: string) =>
  Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.split(' ')
      .at(-1) ?? Number.NaN,
  )
const scrape = async (serve: Running) => (await fetch(`${serve.url}/metrics`, { headers: { connection: 'close' } })).text()
/** Posts on a new connection each, so that the processes take turns. */
const postAnew = async (serve: Running, id: string) => {
  const { headers, body } = payment(id)
  const response = await fetch(`${serve.url}/webhooks/stripe`, {
    method: 'POST',
    body,
    headers: { ...headers, connection: 'close' },
  })
  await response.arrayBuffer()
  return response.status
}

test('WEB_CONCURRENCY serves with several processes on one port, whichever is asked tells the figures of all, and a killed one comes back', async () => {
  const serve = await start('serve', { ...environment, WEB_CONCURRENCY: '3' })
  await until(() => listening(serve).length === 3, 'all three listen')
  const pids = listening(serve)
  const statuses = await Promise.all(Array.from({ length: 30 }, (_, index) => postAnew(serve, `many-${index}`)))
  const scrapes = await Promise.all(Array.from({ length: 6 }, () => scrape(serve)))
  const takers = () => serve.log().flatMap(({ msg, pid }) => (msg === 'webhook' ? [Number(pid)] : []))
  await until(() => takers().length === 30, 'every line has been read')
  const takenBy = new Set(takers())

  process.kill(pids[0] as number, 'SIGKILL')
  await until(() => listening(serve).length === 4, 'another process has been started')
  const after = await postAnew(serve, 'many-after')
  const [last] = await Promise.all([scrape(serve), scrape(serve)])

  expect(new Set(pids).size).toBe(3)
  expect(takenBy).toEqual(new Set(pids))
  expect(statuses).toEqual(Array(30).fill(200))
  expect(scrapes.map((text) => metric(text, 'oncehook_webhook_answer_seconds_count'))).toEqual(Array(6).fill(30))
  expect(scrapes.map((text) => metric(text, 'oncehook_webhook_answers_total{source="stripe",result="accepted"}'))).toEqual(
    Array(6).fill(30),
  )
  // Three pools of six, and one limit that all share.
  expect(metric(scrapes[0] as string, 'oncehook_pool_max_connections{pool="ingest"}')).toBe(18)
  expect(metric(scrapes[0] as string, 'oncehook_call_limit_per_minute')).toBe(1_000_000)
  expect(scrapes[0]?.split('\n').filter((line) => line.startsWith('oncehook_build_info{'))).toHaveLength(1)
  expect(after).toBe(200)
  expect(metric(last, 'oncehook_webhook_answer_seconds_count')).toBe(31)
  expect(serve.log().filter(({ msg }) => String(msg).startsWith('a serving process has ended'))).toEqual([
    expect.objectContaining({ level: 'error', child: pids[0], signal: 'SIGKILL' }),
  ])

  serve.kill('SIGHUP')
  await until(
    () => serve.log().filter(({ msg }) => msg === 'configuration read again').length === 3,
    'each has read the configuration again',
  )
  const everyone = listening(serve)
  serve.kill('SIGTERM')
  expect(await serve.exited).toEqual({ code: 0, signal: null })
  expect(everyone.filter(isAlive)).toEqual([])
})

test('/metrics is refused while one of the processes does not answer: a part of the figures would pass for all', async () => {
  const serve = await start('serve', { ...environment, WEB_CONCURRENCY: '2' })
  const [stopped = 0] = listening(serve)
  process.kill(stopped, 'SIGSTOP')
  // The stopped one takes every second connection and says nothing: one of two goes to the other.
  const answers = [fetch(`${serve.url}/metrics`), fetch(`${serve.url}/metrics`)]
  const first = await Promise.any(answers)
  process.kill(stopped, 'SIGCONT')
  const later = await until(async () => {
    const answer = await fetch(`${serve.url}/metrics`, { headers: { connection: 'close' } })
    return answer.status === 200 && answer.text()
  }, 'the figures of all are told')
  serve.kill('SIGTERM')
  await serve.exited

  expect(first.status).toBe(500)
  expect(later).toContain('oncehook_webhook_answer_seconds_count 0')
})

test('processes that end before they are ready end their parent, with its exit code and a line that says so', async () => {
  const refused = spawnEntry(['serve'], { ...environment, WEB_CONCURRENCY: '2', ONCEHOOK_CONFIG: 'nowhere.config.ts' }, [
    'ignore',
    'pipe',
    'pipe',
  ])
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  const port = String((taken.address() as AddressInfo).port)
  const inUse = spawnEntry(['serve'], { ...environment, WEB_CONCURRENCY: '2', PORT: port }, ['ignore', 'pipe', 'pipe'])
  const ends = await Promise.all([refused.exited, inUse.exited])
  taken.close()

  expect(ends.map(({ code }) => code)).toEqual([78, 1])
  for (const { output } of [refused, inUse]) expect(output()).toContain('the serving processes end before they are ready')
  expect(refused.output().split('nowhere.config.ts').length - 1).toBe(1)
  expect(inUse.output()).toContain('EADDRINUSE')
})

test('I21 one, two and three serve and worker processes, restarted one after the other under load, lose no event and send each email once', async () => {
  const serving: Running[] = []
  const workers: Running[] = []
  const ends: unknown[] = []
  const launch = () => Promise.all([start('serve', environment), start('worker', environment)])
  const add = async () => {
    const [serve, worker] = await launch()
    serving.push(serve)
    workers.push(worker)
  }
  const restart = async (index: number) => {
    const [serve, worker] = [serving[index] as Running, workers[index] as Running] // added before
    serve.kill('SIGTERM')
    worker.kill('SIGTERM')
    const [left, nextPair] = await Promise.all([Promise.all([serve.exited, worker.exited]), launch()])
    ends.push(...left)
    const [nextServe, nextWorker] = nextPair
    serving[index] = nextServe
    workers[index] = nextWorker
  }
  const acked = new Set<string>()
  let isOver = false
  let posted = 0
  // While the only one restarts nobody answers: what is posted then is posted again, as a provider would, once somebody else could answer.
  const deliver = async (id: string, turn: number) => {
    const serve = serving[turn % serving.length] as Running // one is added before
    const { status } = await postPayment(serve.url, id)
    if (status === 200) return void acked.add(id)
    await until(() => serving.some((other) => other !== serve), 'somebody else serves', RESTART_MS)
    await deliver(id, turn + 1)
  }
  // A steady load, not as much as fits: the next one comes when the call for the one before has.
  const sender = async () => {
    while (!isOver) {
      posted += 1
      const id = `roll-${posted}`
      await deliver(id, posted)
      await until(() => sandbox.ledger.some(({ to }) => to === `${id}@example.com`), `${id} is sent`, RESTART_MS)
    }
  }
  const someMore = async () => {
    const before = acked.size
    await until(() => acked.size >= before + 10, 'some more are acknowledged')
  }

  await add()
  const senders = [sender(), sender(), sender()]
  await someMore()
  await restart(0)
  await add()
  await someMore()
  await restart(1)
  await add()
  for (const index of [0, 2]) {
    await someMore()
    await restart(index)
  }
  await someMore()
  isOver = true
  await Promise.all(senders)
  await until(async () => {
    const { rows } = await pool.query(`select state from email_sends where starts_with(recipient, 'roll-')`)
    return rows.length === acked.size && rows.every(({ state }) => state === 'sent')
  }, 'all are sent')
  for (const running of [...serving, ...workers]) running.kill('SIGTERM')
  ends.push(...(await Promise.all([...serving, ...workers].map(({ exited }) => exited))))

  expect(ends).toEqual(Array(14).fill({ code: 0, signal: null }))
  const { rows: events } = await pool.query(`select status from webhook_events where starts_with(event_id, 'evt_roll-')`)
  expect(events.map(({ status }) => status)).toEqual(Array(acked.size).fill('processed'))
  const called = sandbox.ledger.flatMap(({ to }) => (to?.startsWith('roll-') ? [to] : []))
  expect(called.sort()).toEqual([...acked].map((id) => `${id}@example.com`).sort())
})
