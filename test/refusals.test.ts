import express from 'express'
import supertest from 'supertest'
import { expect, test } from 'vitest'
import { readConfig, type Source } from '../src/config.ts'
import { createRefusals } from '../src/events/refusals.ts'
import { eventRoutes } from '../src/events/routes.ts'
import { createLog } from '../src/log.ts'
import { sources } from './support/posting.ts'

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

test('I18 one source gets five closer looks a second; all refusals are counted', async () => {
  const { refused, clock, causes } = begin()
  const flood = async (times: number) => {
    for (let time = 0; time < times; time += 1) refused(source('stripe'), request(), 'missing_signature')
    await turns()
    const closer = causes().filter((cause) => cause === 'closer_look').length
    return [closer, causes().length - closer]
  }

  expect(await flood(100)).toEqual([5, 95])
  clock.now += 199
  expect(await flood(100)).toEqual([5, 195])
  clock.now += 1
  expect(await flood(100)).toEqual([6, 294])
  clock.now += 60_000
  expect(await flood(100)).toEqual([11, 389])
})

test('I18 all sources together get twenty, and one that floods takes no more than its five', async () => {
  const many = readConfig({
    sources: Object.fromEntries(
      Array.from({ length: 8 }, (_, index) => [`gh${index}`, { provider: 'github', secrets: ['gh_test'] }]),
    ),
  })
  const { refused, counted } = begin()

  for (const one of many.sources.values()) for (let time = 0; time < 10; time += 1) refused(one, request(), 'missing_signature')
  await turns()

  const closer = counted.filter(([, cause]) => cause === 'closer_look').map(([name]) => name)
  expect(closer).toEqual(['gh0', 'gh1', 'gh2', 'gh3'].flatMap((name) => Array(5).fill(name)))
  expect(counted.length).toBe(80)
})

test('I18 nobody looks closer at a body over 256 kB', async () => {
  const { refused, causes } = begin()

  refused(source('stripe'), request(262_144), 'signature_mismatch')
  refused(source('stripe'), request(262_145), 'signature_mismatch')
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
    .use(
      eventRoutes({
        recorder: { record: () => Promise.reject(new Error('nothing here is signed')) },
        isWanted: () => false,
        keys: { ring: () => () => 'unknown', fetch: async () => () => 'unknown' },
        fingerprints: () => [],
        tallies: { answered: () => undefined, verified: () => undefined, stop: async () => undefined },
        refusals: { refused },
        now: Date.now,
        config: () => config,
        log: createLog('silent', 'test'),
        acknowledged: () => undefined,
      }),
    )

  const answer = await supertest(app).post('/webhooks/github').send({ zen: true })
  await turns()

  expect({ status: answer.status, text: answer.text, causes: causes(), ended }).toEqual({
    status: 401,
    text: '',
    causes: ['closer_look'],
    ended: [true],
  })
})
