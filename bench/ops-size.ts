import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { availableParallelism, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { openPool } from '../src/db.ts'
import { installQueues } from '../src/follow-ups/queue.ts'
import { migrate } from '../src/migrate.ts'
import { startDatabase } from '../src/sandbox/database.ts'
import { type AckTimes, measureAcks } from './ops-acks.ts'
import { type Case, casesOf, type Samples } from './ops-cases.ts'
import { BIG_TABLES, type Plan, planOf, recordingDb, type Statement } from './ops-plans.ts'
import { fillHistory } from './ops-rows.ts'

// How long each question of the page and the API takes in a large database: `npm run bench:ops`.

const SENDS = Number(process.env.ONCEHOOK_BENCH_ROWS ?? 1_000_000)
const RUNS = Number(process.env.ONCEHOOK_BENCH_RUNS ?? 20)
const ONLY = process.env.ONCEHOOK_BENCH_ONLY
const MOST_MS = 50

const say = (line: string) => process.stderr.write(`${line}\n`)

/** A database with a long history: one that is there already, or a new one that goes again. */
async function openHistory(): Promise<{ url: string; close(): Promise<void> }> {
  const given = process.env.ONCEHOOK_BENCH_URL
  if (given !== undefined) return { url: given, close: async () => undefined }
  const folder = mkdtempSync(join(tmpdir(), 'oncehook-bench-'))
  // As root the server runs as another user.
  chmodSync(folder, 0o755)
  const database = await startDatabase({
    directory: join(folder, 'postgres'),
    settings: ['max_wal_size=8GB', 'maintenance_work_mem=256MB'],
  })
  await migrate(database.url)
  await installQueues(database.url)
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  await fillHistory(client, SENDS, new Date(), say)
  await client.query('vacuum analyze')
  await client.end()
  return {
    url: database.url,
    async close() {
      await database.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function samplesOf(pool: pg.Pool): Promise<Samples> {
  const { rows } = await pool.query<Samples>(
    `select dedupe_key as key, recipient, email_sends.message_id as "messageId", event_id as "eventId", events.id as "eventRow",
       (select dedupe_key from email_sends where status = 'needs_review' order by queued_at limit 1) as "openKey",
       (select max(received_at) from webhook_events where id = (select max(id) from webhook_events)) as now
     from email_sends join webhook_events events on events.id = source_event
     where email_sends.status = 'delivered' and dedupe_key like 'invoice:%' and queued_at < now() - interval '45 days' order by queued_at desc limit 1`,
  )
  const [samples] = rows
  if (!samples) throw new Error('the database holds no history')
  return samples
}

interface Measured extends Plan {
  name: string
  mostMs: number
  cpu: number
  p50: number
  p95: number
  statement: Statement
}

/** Milliseconds of a processor that the database's own process has taken since the last look; other work on the machine is not in it. */
async function openCpuClock(pool: pg.Pool): Promise<() => Promise<number>> {
  const { rows } = await pool.query<{ pid: number }>('select pg_backend_pid() as pid')
  let last = 0
  return async () => {
    const [nanoseconds = 'NaN'] = (await readFile(`/proc/${rows[0]?.pid}/schedstat`, 'utf8').catch(() => '')).split(' ')
    const taken = Number.parseInt(nanoseconds, 10) / 1e6 - last
    last += taken
    return taken
  }
}

async function measure(pool: pg.Pool, { name, run, mostMs = MOST_MS }: Case): Promise<Measured[]> {
  const recording = recordingDb(pool)
  await run(recording.db)
  const measured: Measured[] = []
  const clock = await openCpuClock(pool)
  for (const [index, statement] of recording.statements.entries()) {
    const plan = await planOf(pool, statement)
    const times: number[] = []
    await clock()
    for (let round = 0; round < RUNS; round += 1) {
      const started = performance.now()
      await pool.query(statement.text, [...statement.values])
      times.push(performance.now() - started)
    }
    const cpu = (await clock()) / RUNS
    times.sort((a, b) => a - b)
    const at = (share: number) => times[Math.min(times.length - 1, Math.ceil(times.length * share) - 1)] ?? 0
    const label = recording.statements.length === 1 ? name : `${name} (${index + 1}/${recording.statements.length})`
    measured.push({ name: label, mostMs, ...plan, cpu, p50: at(0.5), p95: at(0.95), statement })
  }
  return measured
}

const history = await openHistory()
// Beside other work a statement waits for its turn: then only what it takes itself is judged.
const isIdle = (loadavg()[0] ?? 0) < availableParallelism()
// One connection: what is measured is the statement, not the waiting for one.
const pool = openPool({ url: history.url, name: 'oncehook-bench', max: 1, statementTimeout: 60_000, isFrugal: true })
const lines = ['| question | rows | CPU ms | p50 ms | p95 ms | pages read | indexes |', '|---|--:|--:|--:|--:|--:|---|']
const failures: string[] = []
try {
  for (const one of casesOf(await samplesOf(pool))) {
    if (ONLY !== undefined && !one.name.includes(ONLY)) continue
    for (const { name, mostMs, rows, cpu, p50, p95, buffers, indexes, scanned } of await measure(pool, one)) {
      const seq = mostMs > MOST_MS ? [] : scanned.filter((table) => BIG_TABLES.includes(table))
      const isSlow = cpu > mostMs || (isIdle && p95 > mostMs)
      const mark = isSlow || seq.length > 0 ? ' **!**' : ''
      lines.push(
        `| ${name}${mark} | ${rows} | ${cpu.toFixed(1)} | ${p50.toFixed(1)} | ${p95.toFixed(1)} | ${buffers} | ${indexes.join(', ')} |`,
      )
      say(lines.at(-1) ?? '')
      if (isSlow) failures.push(`${name}: ${cpu.toFixed(1)} ms of a processor, ${p95.toFixed(1)} ms in all`)
      for (const table of seq) failures.push(`${name}: reads all of ${table}`)
    }
  }
  if (ONLY === undefined || ONLY === 'acks') {
    const { alone, beside } = await measureAcks(history.url)
    const row = (name: string, { acks, p50, p99, questions, timeouts }: AckTimes) =>
      `| ${name} | ${acks} | ${p50.toFixed(1)} | ${p99.toFixed(1)} | ${questions} | ${timeouts} |`
    lines.push(
      '',
      '| acknowledgements | number | p50 ms | p99 ms | questions answered | ended by the time limit |',
      '|---|--:|--:|--:|--:|--:|',
    )
    lines.push(row('alone', alone), row('beside three who ask', beside))
    lines.push('', `p99 beside them is ${(beside.p99 / alone.p99).toFixed(2)} times that without.`)
  }
} finally {
  await pool.end()
  await history.close()
}
process.stdout.write(`${lines.join('\n')}\n`)
for (const failure of failures) say(`✕ ${failure}`)
process.exitCode = failures.length > 0 ? 1 : 0
