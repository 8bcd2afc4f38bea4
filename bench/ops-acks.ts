import { createHmac, randomBytes, randomUUID } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { openPool } from '../src/db.ts'
import { createToken } from '../src/ops/tokens.ts'
import { startServe } from '../src/serve.ts'
import { readSettings } from '../src/settings.ts'

// Whether those who look slow those who deliver: the same load of webhooks without and with three who ask the heaviest questions.

const PER_SECOND = 60
const ROUND_MS = 5_000
const ROUNDS = 5

/** The heaviest lists: common words of long ago, several ways at once, and charts of a week. */
const HEAVY = [
  '/v1/sends?q=INV-1&limit=200',
  '/v1/sends?q=invoice&status=delivered,bounced,needs_review&limit=200',
  '/v1/stats?range=7d',
]

export interface AckTimes {
  p50: number
  p99: number
  acks: number
  /** Answers to the questions, and those that were ended by the time limit. */
  questions: number
  timeouts: number
}

/** Times of acknowledgements, without and with heavy questions, from one process, in turns. */
export async function measureAcks(databaseUrl: string): Promise<{ alone: AckTimes; beside: AckTimes }> {
  const secret = `whsec_${randomBytes(16).toString('hex')}`
  process.env.ONCEHOOK_BENCH_SECRETS = secret
  const configPath = fileURLToPath(new URL('./ops-acks.config.ts', import.meta.url))
  const settings = readSettings({
    DATABASE_URL: databaseUrl,
    ONCEHOOK_CONFIG: configPath,
    PORT: '0',
    LOG_LEVEL: 'silent',
    INBOXILI_API_KEY: 'none',
  })
  const serve = await startServe(settings)
  const pool = openPool({ url: databaseUrl, name: 'oncehook-bench', max: 1 })
  try {
    const token = await createToken(pool, { name: `bench-${randomUUID()}`, role: 'reader' })
    const round = (isBeside: boolean) => oneRound(serve.url, secret, token, isBeside)
    await round(false)
    const alone: Round[] = []
    const beside: Round[] = []
    for (let turn = 0; turn < ROUNDS; turn += 1) {
      alone.push(await round(false))
      beside.push(await round(true))
    }
    return { alone: timesOf(alone), beside: timesOf(beside) }
  } finally {
    await pool.end()
    await serve.stop()
  }
}

interface Round {
  times: number[]
  questions: number
  timeouts: number
}

async function oneRound(url: string, secret: string, token: string, isBeside: boolean): Promise<Round> {
  const result: Round = { times: [], questions: 0, timeouts: 0 }
  const until = performance.now() + ROUND_MS
  const ask = async (path: string) => {
    while (performance.now() < until) {
      const answer = await fetch(url + path, { headers: { authorization: `Bearer ${token}` } })
      await answer.arrayBuffer()
      if (answer.status === 200) result.questions += 1
      else result.timeouts += 1
    }
  }
  const asking = isBeside ? HEAVY.map(ask) : []
  const posts: Promise<void>[] = []
  // By the clock, not by the answers: a slow answer must not spare the next ones.
  for (let at = performance.now(); at < until; at += 1_000 / PER_SECOND) {
    await new Promise((done) => setTimeout(done, Math.max(0, at - performance.now())))
    posts.push(post(url, secret).then((ms) => void result.times.push(ms)))
  }
  await Promise.all([...posts, ...asking])
  return result
}

async function post(url: string, secret: string): Promise<number> {
  const body = JSON.stringify({
    id: `evt_${randomUUID()}`,
    type: 'invoice.paid',
    livemode: true,
    data: { object: { id: 'in_1', text: 'x'.repeat(1_500) } },
  })
  const time = Math.floor(Date.now() / 1_000)
  const signature = createHmac('sha256', secret).update(`${time}.${body}`).digest('hex')
  const started = performance.now()
  const answer = await fetch(`${url}/webhooks/bench`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', 'stripe-signature': `t=${time},v1=${signature}` },
  })
  await answer.arrayBuffer()
  if (answer.status !== 200) throw new Error(`a webhook was answered ${answer.status}`)
  return performance.now() - started
}

function timesOf(rounds: readonly Round[]): AckTimes {
  const times = rounds.flatMap((round) => round.times).sort((a, b) => a - b)
  const at = (share: number) => times[Math.min(times.length - 1, Math.ceil(times.length * share) - 1)] ?? 0
  const sum = (value: (round: Round) => number) => rounds.reduce((total, round) => total + value(round), 0)
  return {
    p50: at(0.5),
    p99: at(0.99),
    acks: times.length,
    questions: sum((round) => round.questions),
    timeouts: sum((round) => round.timeouts),
  }
}
