import { createHmac, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import express, { type RequestHandler } from 'express'
import { pino } from 'pino'
import { afterAll, afterEach, expect, test, vi } from 'vitest'
import { readConfig } from '../src/config.ts'
import { eventRoutes } from '../src/events/routes.ts'
import { createShedding } from '../src/events/shedding.ts'
import type { RecordedEvent } from '../src/events/store.ts'

const options = { provider: 'generic', header: 'x-signature', algorithm: 'sha256', encoding: 'hex', id: 'id', type: 'type' }
const config = readConfig({
  sources: {
    noisy: { ...options, secrets: ['secret_of_the_noisy'] },
    quiet: { ...options, secrets: ['secret_of_the_quiet'] },
  },
})

/** A recorder that stores nothing until it is told to. */
const gate = { isOpen: false, waiting: [] as (() => void)[] }
const recorder = {
  record: async ({ events }: { events: readonly { id: string }[] }): Promise<RecordedEvent[]> => {
    if (!gate.isOpen) await new Promise<void>((done) => gate.waiting.push(done))
    return events.map(({ id }) => ({ id, type: null, status: 'accepted' as const }))
  },
  delayMs: () => 0,
}
const open = () => {
  gate.isOpen = true
  for (const done of gate.waiting.splice(0)) done()
}
afterEach(() => {
  open()
  gate.isOpen = false
  vi.useRealTimers()
})

const answered: string[] = []
const told: { result: string; seconds: number; request: string }[] = []
const tallied: { result: string; seconds: number | undefined }[] = []
let requests = 0
let underWay = 0
const logged: Record<string, unknown>[] = []
const identify: RequestHandler = (_req, res, next) => {
  requests += 1
  res.locals.requestId = `request ${requests}`
  next()
}
const app = express().use(
  identify,
  eventRoutes({
    recorder,
    isWanted: () => false,
    now: Date.now,
    config: () => config,
    log: pino({ base: null }, { write: (line) => logged.push(JSON.parse(line)) }),
    acknowledged(source, result, seconds, request) {
      answered.push(`${source} ${result}`)
      told.push({ result, seconds, request })
    },
    underWay: (more) => {
      underWay += more
    },
    fingerprints: () => [],
    tallies: {
      answered: (_source, result, _cause, seconds) => tallied.push({ result, seconds }),
      verified: () => undefined,
      stop: async () => undefined,
    },
    refusals: { refused: () => undefined },
    keys: { ring: () => () => 'unknown', fetch: async () => () => 'unknown' },
    mostUnderWay: { requests: 32, bytes: 1024 * 1024, requestsInCalm: 32 },
  }),
)
const server = createServer(app).listen(0, '127.0.0.1')
await once(server, 'listening')
const { port } = server.address() as AddressInfo
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

async function post(
  source: 'noisy' | 'quiet',
): Promise<{ status: number; code?: string; retryAfter: number; connection: string | null }> {
  const body = JSON.stringify({ id: randomUUID() })
  const signature = createHmac('sha256', `secret_of_the_${source}`).update(body).digest('hex')
  const answer = await fetch(`http://127.0.0.1:${port}/webhooks/${source}`, {
    method: 'POST',
    headers: { 'x-signature': signature },
    body,
  })
  const { code } = (await answer.json()) as { code?: string }
  const { status, headers } = answer
  return { status, ...(code && { code }), retryAfter: Number(headers.get('retry-after')), connection: headers.get('connection') }
}

test('I18 beyond their number requests are refused with 503 at once, while those under way go on', async () => {
  const posts = Array.from({ length: 100 }, () => post('noisy'))
  await expect.poll(() => gate.waiting.length + answered.length, { interval: 5 }).toBe(100)
  const underWay = gate.waiting.length
  open()

  const answers = await Promise.all(posts)

  const refused = answers.filter(({ status }) => status === 503)
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(underWay)
  // 28 of 32 places, of which a source may have twice what it leaves free.
  expect([underWay, refused.length]).toEqual([19, 81])
  expect(new Set(refused.map(({ code, connection }) => `${code} ${connection}`))).toEqual(
    new Set(['storage_unavailable keep-alive']),
  )
  expect(new Set(refused.map(({ retryAfter }) => retryAfter)).size).toBeGreaterThan(1)
  expect(answers.filter(({ status, retryAfter }) => status === 503 && !(retryAfter >= 2 && retryAfter <= 9))).toEqual([])
})

test('I18 a source that takes all places it can get does not keep another from being recorded', async () => {
  const noisy = Array.from({ length: 100 }, () => post('noisy'))
  await expect.poll(() => gate.waiting.length, { interval: 5 }).toBe(19)

  const quiet = Array.from({ length: 5 }, () => post('quiet'))
  await expect.poll(() => gate.waiting.length, { interval: 5 }).toBe(24)
  open()

  expect((await Promise.all(quiet)).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
  await Promise.all(noisy)
})

test('a refusal of an overload is told of with its request and the time that it took, and is not under way', async () => {
  told.length = 0
  tallied.length = 0
  const posts = Array.from({ length: 30 }, () => post('noisy'))
  await expect.poll(() => gate.waiting.length + told.length, { interval: 5 }).toBe(30)

  const refused = told.filter(({ result }) => result === 'overloaded')
  expect([refused.length, tallied.filter(({ result }) => result === 'overloaded').length, underWay]).toEqual([11, 11, 19])
  expect(new Set(refused.map(({ request }) => request)).size).toBe(11)
  const times = [...refused, ...tallied].map(({ seconds = 0 }) => seconds)
  expect(times.filter((seconds) => !(seconds > 0 && seconds < 20))).toEqual([])
  // The first one waits for 25 ms, by a timer that may be a millisecond early, and those that come meanwhile for the rest of it.
  expect(Math.max(...times)).toBeGreaterThanOrEqual(0.02)
  open()
  await Promise.all(posts)
  await expect.poll(() => underWay, { interval: 5 }).toBe(0)
})

test('after an overload everything is taken again', async () => {
  const posts = Array.from({ length: 100 }, () => post('noisy'))
  await expect.poll(() => gate.waiting.length, { interval: 5 }).toBe(19)
  open()
  await Promise.all(posts)

  const after = await Promise.all(Array.from({ length: 19 }, () => post('noisy')))

  expect(new Set(after.map(({ status }) => status))).toEqual(new Set([200]))
})

test('refusals of an overload are told of once a second, with their number for each source', async () => {
  vi.useFakeTimers()
  const told: string[] = []
  const answers: number[] = []
  const shedding = createShedding((source, count) => told.push(`${source} ${count}`))

  const refused = async (source: string, index: number) => {
    await shedding.refused(source)
    answers.push(index)
  }

  const all = [0, 1, 2].map((index) => refused('noisy', index))
  all.push(refused('quiet', 3))
  await vi.advanceTimersByTimeAsync(24)
  const answeredBy = [answers.length]
  await vi.advanceTimersByTimeAsync(76)
  answeredBy.push(answers.length)
  all.push(refused('noisy', 4))
  await vi.advanceTimersByTimeAsync(1_000)
  answeredBy.push(answers.length)
  all.push(refused('noisy', 5))
  await vi.advanceTimersByTimeAsync(1_000)
  await Promise.all(all)

  expect([answeredBy, answers]).toEqual([
    [0, 4, 5],
    [0, 1, 2, 3, 4, 5],
  ])
  expect(told).toEqual(['noisy 4', 'quiet 1', 'noisy 1'])
})
