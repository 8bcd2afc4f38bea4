import { createHmac, randomUUID } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { inTransaction, openPool } from '../src/db.ts'
import { installQueues, openJobs } from '../src/follow-ups/queue.ts'
import { migrate } from '../src/migrate.ts'
import { startDatabase } from '../src/sandbox/database.ts'
import { type Part, startPart } from './follow-up-parts.ts'

// How fast queued events are worked off, how soon a delivery event settles its send, and whether a backlog slows the
// acknowledging: `npm run bench:follow-ups`. Real PostgreSQL with fsync, real processes, all on this machine.

const EVENTS = Number(process.env.ONCEHOOK_BENCH_EVENTS ?? 10_000)
const ROUNDS = Number(process.env.ONCEHOOK_BENCH_ROUNDS ?? 5)
const ONLY = process.env.ONCEHOOK_BENCH_ONLY
const PER_SECOND = 50
const ROUND_MS = 8_000
const STRIPE_SECRET = 'whsec_of_the_bench'
const INBOXILI_SECRET = 'inboxili_of_the_bench'

const say = (line: string) => process.stdout.write(`${line}\n`)
const wants = (part: string) => ONLY === undefined || ONLY === part

const folder = mkdtempSync(join(tmpdir(), 'oncehook-bench-'))
const database = await startDatabase({ directory: join(folder, 'postgres'), settings: ['max_wal_size=4GB'] })
await migrate(database.url)
await installQueues(database.url)
const pool = openPool({ url: database.url, name: 'oncehook-bench', max: 4, statementTimeout: 120_000 })
const jobs = await openJobs(database.url)
const environment = {
  DATABASE_URL: database.url,
  ONCEHOOK_BENCH_SECRETS: STRIPE_SECRET,
  INBOXILI_WEBHOOK_SECRETS: INBOXILI_SECRET,
  INBOXILI_API_KEY: 'none',
  INBOXILI_BASE_URL: 'http://127.0.0.1:1',
  LOG_LEVEL: process.env.ONCEHOOK_BENCH_LOG ?? 'info',
  ...(process.env.ONCEHOOK_BENCH_NODE_OPTIONS && { NODE_OPTIONS: process.env.ONCEHOOK_BENCH_NODE_OPTIONS }),
}
const start = (part: 'serve' | 'worker') => startPart(part, environment)

const median = (values: readonly number[]) => at(values, 0.5)
const at = (values: readonly number[], share: number) => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * share) - 1))] ?? Number.NaN
}
const list = (values: readonly number[], digits = 0) => values.map((value) => value.toFixed(digits)).join(' ')

/** Stored events with their jobs, as a burst leaves them, with 2 kB bodies. */
async function queueEvents(count: number): Promise<void> {
  await inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ id: string }>(
      `insert into webhook_events (source, event_id, id_basis, id_signed, type, livemode, status, headers, object_ref, occurred_at, body, body_sha256)
       select 'bench', id, 'provider', true, 'invoice.paid', true, 'pending', '{"content-type":"application/json"}', 'in_' || id, now(), body, sha256(body)
       from (select id, convert_to(json_build_object('id', id, 'type', 'invoice.paid', 'livemode', true, 'data',
           json_build_object('object', json_build_object('id', 'in_' || id, 'object', 'invoice', 'customer', 'cus_' || id, 'text', repeat(md5(id), 56))))::text, 'utf8') as body
         from (select 'evt_' || gen_random_uuid() as id from generate_series(1, $1)) made) bodies
       returning id`,
      [count],
    )
    await jobs.enqueueEvents(
      tx,
      rows.map(({ id }) => id),
    )
  })
}

const pending = async () => {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*)::int from webhook_events where status = 'pending' and source = 'bench'`,
  )
  return rows[0]?.count ?? 0
}

/** Until nothing is pending. */
async function drained(): Promise<void> {
  while ((await pending()) > 0) await sleep(100)
}

/** Milliseconds of CPU that the server and all its processes have used, the ended ones too; not a number where there is no /proc. */
async function serverCpuMs(): Promise<number> {
  const { rows } = await pool.query<{ file: string }>(`select pg_read_file('postmaster.pid') as file`)
  const postmaster = Number(rows[0]?.file.split('\n')[0])
  let ticks = 0
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    const fields = statOf(pid)
    if (Number(pid) === postmaster) ticks += sum(fields.slice(11, 15))
    else if (Number(fields[1]) === postmaster) ticks += sum(fields.slice(11, 13))
  }
  return ticks * 10
}
const statOf = (pid: string | number) => {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ')
  } catch {
    return []
  }
}
const sum = (fields: readonly string[]) => fields.reduce((total, field) => total + Number(field), 0)
const cpuMs = (pid: number) => sum(statOf(pid).slice(11, 13)) * 10

async function drain(): Promise<void> {
  const rates: number[] = []
  const cpu: number[] = []
  const serverCpu: number[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    await queueEvents(EVENTS)
    await pool.query('vacuum analyze webhook_events, pgboss.job_common').catch(() => pool.query('analyze'))
    const worker = await start('worker')
    const [before, serverBefore] = [cpuMs(worker.pid), await serverCpuMs()]
    await drained()
    cpu.push(((cpuMs(worker.pid) - before) / EVENTS) * 1_000)
    serverCpu.push((((await serverCpuMs()) - serverBefore) / EVENTS) * 1_000)
    // By the rows: from the first that was closed to the last, so without the start of the process.
    const { rows } = await pool.query<{ seconds: number; count: number }>(
      `select extract(epoch from max(processed_at) - min(processed_at))::float8 as seconds, count(*)::int as count
       from webhook_events where source = 'bench' and status = 'processed'`,
    )
    rates.push((rows[0]?.count ?? 0) / (rows[0]?.seconds ?? Number.NaN))
    await worker.stop()
    await pool.query('truncate webhook_events, event_refs cascade')
    await pool.query('delete from pgboss.job')
  }
  say(
    `drain of ${EVENTS} events that want no email, one worker: median ${median(rates).toFixed(0)} events/s (rounds ${list(rates)})`,
  )
  say(
    `  CPU ms per 1,000 events: worker ${median(cpu).toFixed(0)} (${list(cpu)}), PostgreSQL ${median(serverCpu).toFixed(0)} (${list(serverCpu)})`,
  )
}

async function post(serve: Part, source: string, body: string, headers: Record<string, string>): Promise<number> {
  const started = performance.now()
  const answer = await fetch(`${serve.url}/webhooks/${source}`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', ...headers },
  })
  await answer.arrayBuffer()
  if (answer.status !== 200) throw new Error(`a webhook was answered ${answer.status}`)
  return performance.now() - started
}

const postPayment = (serve: Part) => {
  const body = JSON.stringify({
    id: `evt_${randomUUID()}`,
    type: 'invoice.created',
    livemode: true,
    data: { object: { id: 'in_1', text: 'x'.repeat(1_500) } },
  })
  const time = Math.floor(Date.now() / 1_000)
  const mac = createHmac('sha256', STRIPE_SECRET).update(`${time}.${body}`).digest('hex')
  return post(serve, 'bench', body, { 'stripe-signature': `t=${time},v1=${mac}` })
}

/** Does it so often a second, by the clock: a slow answer must not spare the next ones. */
async function pace(forMs: number, task: () => Promise<void>): Promise<void> {
  const until = performance.now() + forMs
  const tasks: Promise<void>[] = []
  for (let next = performance.now(); next < until; next += 1_000 / PER_SECOND) {
    await sleep(Math.max(0, next - performance.now()))
    tasks.push(task())
  }
  await Promise.all(tasks)
}

async function besideBacklog(): Promise<void> {
  const [serve, worker] = await Promise.all([start('serve'), start('worker')])
  const round = async (hasBacklog: boolean) => {
    const times: number[] = []
    let isOver = false
    const filling = (async () => {
      while (hasBacklog && !isOver) {
        if ((await pending()) < EVENTS / 2) await queueEvents(EVENTS / 2)
        await sleep(100)
      }
    })()
    await pace(ROUND_MS, async () => void times.push(await postPayment(serve)))
    isOver = true
    await filling
    await drained()
    return times
  }
  await round(false)
  const [alone, beside]: [number[][], number[][]] = [[], []]
  for (let turn = 0; turn < ROUNDS; turn += 1) {
    alone.push(await round(false))
    beside.push(await round(true))
  }
  await Promise.all([serve.stop(), worker.stop()])
  for (const share of [0.5, 0.99]) {
    const [a, b] = [alone.map((times) => at(times, share)), beside.map((times) => at(times, share))]
    const ratios = b.map((value, index) => value / (a[index] ?? Number.NaN))
    say(
      `ack p${share * 100} at ${PER_SECOND}/s: alone ${median(a).toFixed(1)} ms (${list(a, 1)}), beside a backlog ${median(b).toFixed(1)} ms (${list(b, 1)}), median ratio ${median(ratios).toFixed(2)}`,
    )
  }
}

/** A send that is unknown, and the delivery event that settles it. */
async function settlement(): Promise<void> {
  const [serve, worker] = await Promise.all([start('serve'), start('worker')])
  const all: number[][] = []
  const before = cpuMs(worker.pid)
  for (let turn = 0; turn < ROUNDS; turn += 1) all.push(await settlementRound(serve))
  const cpu = (cpuMs(worker.pid) - before) / all.flat().length
  await Promise.all([serve.stop(), worker.stop()])
  const p99 = all.map((times) => at(times, 0.99))
  say(
    `settlement after the ack at ${PER_SECOND} delivery events/s: p50 ${median(all.map((times) => at(times, 0.5))).toFixed(0)} ms, p99 ${median(p99).toFixed(0)} ms (rounds ${list(p99)}), of ${all.flat().length}; CPU of the worker ${cpu.toFixed(1)} ms each`,
  )
}

async function settlementRound(serve: Part): Promise<number[]> {
  const acked = new Map<string, number>()
  const times: number[] = []
  let isOver = false
  const looking = (async () => {
    while (!isOver || acked.size > 0) {
      const { rows } = await pool.query<{ key: string }>(
        `select dedupe_key as key from email_sends where dedupe_key = any($1) and status = 'delivered'`,
        [[...acked.keys()]],
      )
      const now = performance.now()
      for (const { key } of rows) {
        times.push(now - (acked.get(key) ?? now))
        acked.delete(key)
      }
      await sleep(3)
    }
  })()
  await pace(ROUND_MS, async () => {
    const id = randomUUID()
    await insertUnknownSend(pool, id)
    const body = JSON.stringify({
      event: 'delivered',
      message_id: id,
      to: `${id}@example.com`,
      timestamp: new Date().toISOString(),
    })
    await post(serve, 'inboxili', body, {
      'x-inboxili-signature': createHmac('sha256', INBOXILI_SECRET).update(body).digest('hex'),
    })
    acked.set(id, performance.now())
  })
  isOver = true
  await looking
  return times
}

/** As a call leaves it whose answer was lost a minute ago. */
async function insertUnknownSend(db: pg.Pool, id: string): Promise<void> {
  await db.query(
    `with send as (
       insert into email_sends (dedupe_key, state, policy, recipient, message, message_sha256, requested_by, match_key)
       values ($1, 'needs_review', 'claim', $2, '{}', '\\x00', 'bench', $2))
     insert into send_attempts (id, dedupe_key, number, recipient, match_key, outcome, claimed_at, called_at, ended_at)
     values ($1::text::uuid, $1, 1, $2, $2, 'unknown', now() - interval '1 minute', now(), now())`,
    [id, `${id}@example.com`],
  )
}

try {
  say(`${availableParallelism()} cores, load ${list(loadavg(), 1)}, Node ${process.version}`)
  if (wants('drain')) await drain()
  if (wants('settlement')) await settlement()
  if (wants('acks')) await besideBacklog()
} finally {
  await pool.end()
  await database.stop()
  rmSync(folder, { recursive: true, force: true })
}
