import { afterAll, expect, test } from 'vitest'
import { checkInvariants, checkLedger } from '../src/ops/invariants.ts'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, postPayment, quick, start, until } from './support/processes.ts'

const SEED = 20_261_129
const ROUNDS = 6

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
afterAll(() => sandbox.close())
const environment = {
  ...quick,
  DATABASE_URL: databaseUrl,
  INBOXILI_BASE_URL: sandbox.url,
  ONCEHOOK_STALE_AFTER_MS: '1000',
  // Five of the cut calls may come in a row, which holds sending until a probe is accepted.
  ONCEHOOK_PROBE_EVERY_MS: '1000',
}

/** Numbers that look random and are the same for each run (mulberry32). */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below)
  }
}

/** All that waits may be in jobs of a killed worker, more than once in a row: each time some 17 s pass until another has them. */
const TAKEN_OVER_MS = 60_000

test(`I2 I6 nothing acknowledged is lost and nothing is sent twice when processes are killed at any moment (seed ${SEED})`, async () => {
  const random = randomNumbers(SEED)
  // Not told by the calls: a send whose worker died before its call has none, and waits for a person.
  const countOpen = async () => {
    const { rows } = await pool.query<{
      open: number
    }>(`select (select count(*) from webhook_events where status = 'pending')::int
      + (select count(*) from email_sends where state in ('queued', 'claimed', 'sending'))::int as open`)
    return rows[0]?.open ?? Number.NaN
  }
  const acknowledged = new Set<string>()
  let posted = 0
  let [serve, worker] = await Promise.all([start('serve', environment), start('worker', environment)])

  // Each provider posts its event until it is acknowledged, and now and again once more.
  let isPosting = true
  const provider = async () => {
    while (isPosting) {
      posted += 1
      const id = `crash-${posted}`
      const copies = 1 + random(2)
      await until(async () => {
        const answers = await Promise.all(Array.from({ length: copies }, () => postPayment(serve.url, id)))
        const isAcknowledged = answers.some(({ status }) => status === 200)
        if (isAcknowledged) acknowledged.add(`evt_${id}`)
        return isAcknowledged || !isPosting
      }, 'the event is acknowledged')
      await until(async () => !isPosting || (await countOpen()) < 20, 'the worker is not far behind', TAKEN_OVER_MS)
    }
  }
  const providers = Array.from({ length: 4 }, provider)

  for (let round = 0; round < ROUNDS; round += 1) {
    for (let call = random(8); call > 0; call -= 1)
      sandbox.arm([{ kind: 'hold', ms: random(400) }, { kind: 'cut_after_accept' }, { kind: 'ok' }][random(3)] as { kind: 'ok' })
    if (round % 2 === 0) {
      const posts = posted + 5 + random(20)
      await until(() => posted >= posts, 'so many events are posted', TAKEN_OVER_MS)
      serve.kill('SIGKILL')
      await serve.exited
      serve = await start('serve', environment)
    } else {
      const calls = sandbox.requests + 3 + random(15)
      await until(() => sandbox.requests >= calls, 'so many calls are made', TAKEN_OVER_MS)
      worker.kill('SIGKILL')
      await worker.exited
      worker = await start('worker', environment)
    }
  }
  isPosting = false
  await Promise.all(providers)
  await until(async () => (await countOpen()) === 0, 'everything has come to an end', TAKEN_OVER_MS)

  const { rows: events } = await pool.query<{ event_id: string; status: string }>('select event_id, status from webhook_events')
  const stored = new Map(events.map((row) => [row.event_id, row.status]))
  expect([...acknowledged].filter((id) => stored.get(id) !== 'processed')).toEqual([])
  const { rows: sends } = await pool.query<{ recipient: string; state: string }>('select recipient, state from email_sends')
  expect(sends.length).toBe(events.length)
  const calls = Map.groupBy(sandbox.ledger, ({ to }) => to ?? '')
  const wrong = sends.filter(({ recipient, state }) => {
    const accepted = calls.get(recipient)?.filter((call) => call.accepted).length ?? 0
    // Surely sent: once. Unknown: at most once, and a person sees it.
    return state === 'sent' ? accepted !== 1 : state !== 'needs_review' || accepted > 1
  })
  expect(wrong).toEqual([])
  expect([...calls.values()].filter((same) => same.length > 1)).toEqual([])
  expect(acknowledged.size).toBeGreaterThan(ROUNDS * 3)
  const violations = [...(await checkInvariants(pool, 1_000)), ...(await checkLedger(pool, sandbox.ledger))]
  // Here more calls a minute are allowed.
  expect(violations.filter(({ invariant }) => invariant !== 'I14')).toEqual([])
}, 400_000)
