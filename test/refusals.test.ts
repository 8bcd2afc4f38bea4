import express from 'express'
import supertest from 'supertest'
import { expect, test, vi } from 'vitest'
import { readConfig, type Source } from '../src/config.ts'
import { createRefusals } from '../src/events/refusals.ts'
import { eventRoutes } from '../src/events/routes.ts'
import { createLog } from '../src/log.ts'
import { sha256Hex, sources } from './support/posting.ts'

const config = readConfig({ sources })
const source = (name: string): Source => config.sources.get(name) ?? expect.unreachable()
const request = (bytes = 10) => ({ headers: {}, body: Buffer.alloc(bytes) })
/** Lets the loop turn as often as anything could wait for. */
async function turns(): Promise<void> {
  for (let count = 0; count < 50; count += 1) await new Promise<void>((done) => setImmediate(done))
}

function begin(explain: Parameters<typeof createRefusals>[0]['explain'] = () => 'closer_look') {
  const counted: [source: string, cause: string][] = []
  const clock = { now: 1_000 }
  const count = (name: string, cause: string) => void counted.push([name, cause])
  const { refused } = createRefusals({ explain, count, now: () => clock.now })
  return { refused, clock, counted, causes: () => counted.map(([, cause]) => cause) }
}

test('a refusal is counted under what a closer look found, with the request and the reason at hand', async () => {
  const asked: unknown[] = []
  const { refused, counted } = begin((...given) => {
    asked.push(given)
    return 'secret_of_another_source'
  })
  const refusedRequest = request()

  refused(source('stripe'), refusedRequest, 'signature_mismatch')
  const before = [...counted]
  await turns()

  expect(before).toEqual([])
  expect(counted).toEqual([['stripe', 'secret_of_another_source']])
  expect(asked).toEqual([[source('stripe'), refusedRequest, 'signature_mismatch']])
})

/** A closer look that takes this many milliseconds of the clock. */
function beginWithLooksOf(ms: number) {
  const begun = begin(() => {
    begun.clock.now += ms
    return 'closer_look'
  })
  const flood = async (times: number, name = 'stripe') => {
    for (let time = 0; time < times; time += 1) {
      begun.refused(source(name), request(), 'missing_signature')
      await new Promise<void>((done) => setImmediate(done))
    }
    const closer = begun.causes().filter((cause) => cause === 'closer_look').length
    return [closer, begun.causes().length - closer]
  }
  return { ...begun, flood }
}

test('I18 closer looks at one source take 50 ms of a second; all refusals are counted', async () => {
  const { clock, flood } = beginWithLooksOf(20)

  // Saved up for one second, and what the third took too much is paid back first. The clock goes on by the looks themselves.
  expect(await flood(100)).toEqual([3, 97])
  clock.now += 100
  expect(await flood(100)).toEqual([3, 197])
  clock.now += 100
  expect(await flood(100)).toEqual([4, 296])
  clock.now += 60_000
  expect(await flood(100)).toEqual([7, 393])
})

test('I18 closer looks at all sources together take 100 ms of a second, and one that floods leaves half of them', async () => {
  const { flood } = beginWithLooksOf(20)

  expect(await flood(100, 'stripe')).toEqual([3, 97])
  expect(await flood(100, 'github')).toEqual([6, 194])
  expect(await flood(100, 'gocardless')).toEqual([6, 294])
})

test('I18 a minute of refusals that each take long to explain leaves nine tenths of it to others', async () => {
  const { clock, refused, causes } = beginWithLooksOf(70)

  // 25 a second for each of four sources.
  const end = clock.now + 60_000
  for (; clock.now < end; clock.now += 10) {
    refused(source(['stripe', 'github', 'gocardless', 'generic'][(clock.now / 10) % 4] as string), request(), 'missing_signature')
    await new Promise<void>((done) => setImmediate(done))
  }

  const spent = causes().filter((cause) => cause === 'closer_look').length * 70
  expect(spent).toBeGreaterThan(5_000)
  expect(spent).toBeLessThan(6_300)
})

test('I18 eight wait for a closer look; the others are counted at once, and nothing is left a few turns later', async () => {
  const { refused, causes } = begin()

  for (let time = 0; time < 1_000; time += 1) refused(source('stripe'), request(32_768), 'signature_mismatch')
  const atOnce = causes().length
  await turns()

  expect(atOnce).toBe(992)
  expect(causes().filter((cause) => cause === 'closer_look')).toHaveLength(8)
  expect(causes()).toHaveLength(1_000)
})

test('I18 of those that wait already, none is looked at once the time is used up', async () => {
  const { refused, causes } = beginWithLooksOf(70)

  for (let time = 0; time < 8; time += 1) refused(source('stripe'), request(), 'missing_signature')
  await turns()

  expect(causes()).toEqual(['closer_look', ...Array(7).fill('missing_signature')])
})

test('I18 nobody looks closer at a body over 32 kB', async () => {
  const { refused, causes } = begin()

  refused(source('stripe'), request(32_768), 'signature_mismatch')
  refused(source('stripe'), request(32_769), 'signature_mismatch')
  await turns()

  expect(causes().sort()).toEqual(['closer_look', 'signature_mismatch'])
})

test('a closer look that throws leaves the reason, and the next one runs', async () => {
  let looks = 0
  const { refused, causes } = begin(() => {
    looks += 1
    if (looks === 1) throw new Error('a bug')
    return 'closer_look'
  })

  refused(source('stripe'), request(), 'malformed_signature')
  refused(source('stripe'), request(), 'malformed_signature')
  await turns()

  expect(causes()).toEqual(['malformed_signature', 'closer_look'])
})

test('of many at once one is looked at in each turn, so that requests are answered in between', async () => {
  let looks = 0
  const { refused } = begin(() => {
    looks += 1
    return 'closer_look'
  })

  for (let time = 0; time < 5; time += 1) refused(source('stripe'), request(), 'missing_signature')
  const seen: number[] = []
  for (let turn = 0; turn < 5; turn += 1) {
    await new Promise<void>((done) => setImmediate(done))
    seen.push(looks)
  }

  expect(seen).toEqual([1, 2, 3, 4, 5])
})

/** The webhook routes, with nothing behind them that stores. */
const routes = (changes: Partial<Parameters<typeof eventRoutes>[0]>) =>
  eventRoutes({
    recorder: { record: () => Promise.reject(new Error('nothing here is signed')), delayMs: () => 0 },
    isWanted: () => false,
    keys: { ring: () => () => 'unknown', fetch: async () => () => 'unknown' },
    fingerprints: () => [],
    tallies: { answered: () => undefined, verified: () => undefined, stop: async () => undefined },
    refusals: { refused: () => undefined },
    now: Date.now,
    config: () => config,
    log: createLog('silent', 'test'),
    acknowledged: () => undefined,
    ...changes,
  })

test('the 401 is out before anybody looks closer, and says nothing of it', async () => {
  const ended: boolean[] = []
  const answers: express.Response[] = []
  const { refused, causes } = begin(() => {
    ended.push(answers.every((res) => res.writableEnded))
    return 'closer_look'
  })
  const app = express()
    .use((_req, res, next) => {
      answers.push(res)
      next()
    })
    .use(routes({ refusals: { refused } }))

  const answer = await supertest(app).post('/webhooks/github').send({ zen: true })
  await turns()

  expect({ status: answer.status, text: answer.text, causes: causes(), ended }).toEqual({
    status: 401,
    text: '',
    causes: ['closer_look'],
    ended: [true],
  })
})

test('a request whose key can not be had now is to be delivered again, and is told from storage that is away', async () => {
  const bank = readConfig({ sources: { bank: { provider: 'plaid', secrets: ['client:s3cret'] } } })
  const refused = vi.fn()
  const keys = { ring: () => () => undefined, fetch: async () => () => undefined }
  const app = express().use(routes({ config: () => bank, keys, refusals: { refused } }))
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const claims = { iat: Math.floor(Date.now() / 1_000), request_body_sha256: sha256Hex('{}') }
  const token = [part({ alg: 'ES256', kid: 'k1', typ: 'JWT' }), part(claims), Buffer.alloc(64, 1).toString('base64url')].join('.')

  const answer = await supertest(app)
    .post('/webhooks/bank')
    .set({ 'plaid-verification': token, 'content-type': 'application/json' })
    .send('{}')

  expect([answer.status, answer.body.code]).toEqual([503, 'key_unavailable'])
  expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
  expect(refused).not.toHaveBeenCalled()
})
