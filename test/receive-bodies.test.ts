import { beforeEach, expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import {
  BODY_H,
  BODY_H_MAC,
  BODY_H_SHA256,
  countRows,
  emptyTables,
  listen,
  sha256Hex,
  signed,
  sources,
  storedEvents,
} from './support/posting.ts'
import { hexHmac, testService } from './support/service.ts'

const seen: unknown[] = []
const database = await testDatabase()
const service = await testService(database, {
  sources,
  followUps: [
    { source: 'generic', type: 'watched', email: (payload) => void seen.push(payload) },
    { source: 'github', type: 'watched', email: (payload) => void seen.push(payload) },
  ],
})
const { post } = await listen(service.app)
beforeEach(async () => {
  seen.length = 0
  await emptyTables(database)
})

const postGeneric = (body: string | Buffer, headers = {}) =>
  post('/webhooks/generic', body, { ...signed.generic(body), ...headers })

test('C-01 the signature is checked over the received bytes, which are what is stored', async () => {
  const received = await post('/webhooks/generic', BODY_H, { 'x-signature': BODY_H_MAC })
  const reserialised = await post('/webhooks/generic', BODY_H, {
    'x-signature': '1bc875899053152b0cc7df0ecc168e3c8053f1cc230a02f16fa6c5497d2224c2',
  })

  expect([received.status, reserialised.status]).toEqual([200, 401])
  const [event, ...more] = await storedEvents(database)
  expect(more).toEqual([])
  expect(event?.body).toEqual(BODY_H)
  expect(event?.body?.length).toBe(105)
  expect(event?.body_sha256.toString('hex')).toBe(BODY_H_SHA256)
  expect(event?.event_id).toBe('evt_1')
})

test('C-02 the body is read whatever its Content-Type says, or without one', async () => {
  const types = [
    undefined,
    'application/json',
    'application/json; utf-8',
    'text/plain;charset=UTF-8',
    'application/cloudevents+json',
    'application/json; charset=iso-8859-1',
    'multipart/form-data',
    'nonsense',
  ]

  for (const [index, type] of types.entries()) {
    const body = BODY_H.toString().replace('evt_1', `evt_${index}`)
    expect((await postGeneric(body, type === undefined ? {} : { 'content-type': type })).json.status).toBe('accepted')
  }

  const events = await storedEvents(database)
  expect(events.map((event) => event.event_id)).toEqual(['evt_0', 'evt_1', 'evt_2', 'evt_3', 'evt_4', 'evt_5', 'evt_6', 'evt_7'])
  expect(events.map((event) => event.body?.length)).toEqual(Array(8).fill(105))
  expect(events.map((event) => event.headers['content-type'])).toEqual(types)
})

test('C-03 a byte order mark is signed and stored, but no part of the JSON', async () => {
  const body = Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), BODY_H])

  const answer = await post('/webhooks/generic', body, {
    'x-signature': '3aa775f8a4441715db7e92fbb661bbf292482eb5e17dca711f827f04777afafe',
  })
  const withoutMark = await post('/webhooks/generic', body, { 'x-signature': BODY_H_MAC })

  expect([answer.status, withoutMark.status]).toEqual([200, 401])
  const events = await storedEvents(database)
  expect(events.map((event) => [event.event_id, event.body?.length, event.body?.subarray(0, 3).toString('hex')])).toEqual([
    ['evt_1', 108, 'efbbbf'],
  ])
})

test('C-04 emoji and accents verify as UTF-8, and not as Latin-1', async () => {
  const latin1 = await post('/webhooks/generic', BODY_H, {
    'x-signature': 'd731ec26a489447ad28ab6896ee891730193602bf35752ba14becf61454f4042',
  })
  const utf8 = await post('/webhooks/generic', BODY_H, { 'x-signature': BODY_H_MAC })

  expect([latin1.status, utf8.status]).toEqual([401, 200])
})

test('C-25 a form-encoded GitHub delivery is verified and stored as the form, and read as its JSON', async () => {
  const form = 'payload=%7B%22zen%22%3A%22a+b%22%7D'
  const headers = {
    'content-type': 'application/x-www-form-urlencoded',
    'x-github-event': 'watched',
    'x-github-delivery': 'g1',
  }

  const answer = await post('/webhooks/github', form, {
    ...headers,
    'x-hub-signature-256': 'sha256=e9aeb6f4dfc88150f8d8c2dd24d23cbc041e7ccade45a1f8bfe4fd27542175c6',
  })
  const overJson = await post('/webhooks/github', form, {
    ...headers,
    'x-github-delivery': 'g2',
    'x-hub-signature-256': `sha256=${hexHmac('{"zen":"a b"}', 'gh_test')}`,
  })
  expect(await service.drain()).toEqual([])

  expect([answer.status, overJson.status]).toEqual([200, 401])
  const events = await storedEvents(database)
  expect(events.map((event) => [event.event_id, event.body?.toString()])).toEqual([['g1', form]])
  expect(seen).toEqual([{ zen: 'a b' }])
})

test('C-26 NUL in a payload does not block the event, and a rule never sees it', async () => {
  const body = String.raw`{"id":"n1","type":"watched","name":"a\u0000b","lit":"c\\u0000d","k\u0000":1}`

  const answer = await postGeneric(body)
  expect(await service.drain()).toEqual([])

  expect(answer.json.status).toBe('accepted')
  const events = await storedEvents(database)
  expect(events.map((event) => [event.event_id, event.body?.toString(), event.status])).toEqual([['n1', body, 'processed']])
  expect(seen).toEqual([{ id: 'n1', type: 'watched', name: 'a\ufffdb', lit: 'c\\u0000d', 'k\ufffd': 1 }])
})

test('C-27 numeric IDs beyond 2^53 keep every digit and stay two events', async () => {
  const answers = [await postGeneric('{"id":9007199254740992}'), await postGeneric('{"id":9007199254740993}')]

  expect(answers.map((answer) => answer.json.status)).toEqual(['accepted', 'accepted'])
  expect((await storedEvents(database)).map((event) => event.event_id)).toEqual(['9007199254740992', '9007199254740993'])
})

test('C-28 deep nesting is kept raw and stops nothing', async () => {
  const nested = (depth: number) => `{"id":"d${depth}","x":${'['.repeat(depth)}${']'.repeat(depth)}}`

  const answers = []
  for (const depth of [100, 5_000, 100_000]) answers.push(await postGeneric(nested(depth)))
  const after = await postGeneric('{"id":"after"}')

  expect([...answers, after].map((answer) => [answer.status, answer.json.status])).toEqual([
    [200, 'accepted'],
    [200, 'quarantined'],
    [200, 'quarantined'],
    [200, 'accepted'],
  ])
  const kept = (await storedEvents(database)).filter((event) => event.status === 'quarantined')
  expect(kept.map((event) => [event.body?.toString(), event.error])).toEqual([
    [nested(5_000), 'too_deep'],
    [nested(100_000), 'too_deep'],
  ])
})

const unusable = ['', 'ping', '42', 'null', '[]', '{"id":null}', '{"id":""}', '{"id":{}}', '{}', '{"id":"x"']

test('C-29 what is signed but no usable event is kept raw for people, once, and starts nothing', async () => {
  const first = []
  for (const body of unusable) first.push(await postGeneric(body))
  const again = []
  for (const body of unusable) again.push(await postGeneric(body))

  expect(first.map((answer) => [answer.status, answer.json])).toEqual(
    unusable.map((body) => [
      200,
      { status: 'quarantined', events: [{ id: `sha256:${sha256Hex(body)}`, type: null, status: 'quarantined' }] },
    ]),
  )
  expect(again.map((answer) => [answer.status, answer.json.status])).toEqual(unusable.map(() => [200, 'duplicate']))
  const events = await storedEvents(database)
  expect(events.map((event) => event.body?.toString())).toEqual(unusable)
  expect(events.map((event) => event.error)).toEqual([
    'empty_body',
    'not_json',
    'not_an_object',
    'not_an_object',
    'not_an_object',
    'no_id',
    'no_id',
    'no_id',
    'no_id',
    'not_json',
  ])
  expect(new Set(events.map((event) => `${event.status} ${event.id_basis} ${event.redeliveries}`))).toEqual(
    new Set(['quarantined body_hash 1']),
  )
  expect(await countRows(database)).toEqual({ events: 10, bodies: 0, conflicts: 0, jobs: 0, sends: 0 })
})
