import supertest from 'supertest'
import { afterAll, describe, expect, test } from 'vitest'
import { createApp } from '../src/app.ts'
import { isPoolFull, isStorageAway, openPool } from '../src/db.ts'
import { createLog } from '../src/log.ts'
import { createToken } from '../src/ops/tokens.ts'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'
import { hexHmac, testService } from './support/service.ts'

const database = await testDatabase()
const { pool, url } = database
const shop = {
  provider: 'generic',
  secrets: ['shop-secret'],
  header: 'x-signature',
  algorithm: 'sha256',
  encoding: 'hex',
  id: 'id',
  type: 'type',
} as const
const service = await testService(database, { sources: { shop } })
// One connection, which somebody holds: what others ask for in vain.
const reads = openPool({ url, name: 'test-reads', max: 1, connectionTimeout: 10_000 })
const held = await reads.connect()
reads.options.connectionTimeoutMillis = 20
afterAll(async () => {
  held.release()
  await reads.end()
})
const { deps, cookies } = await testPages(database, undefined, { reads })
const token = await createToken(pool, { name: 'grafana', role: 'reader' })
const app = createApp({
  log: createLog('silent', 'test'),
  events: service.eventDeps,
  ops: deps,
  notReady: async () => undefined,
  metrics: async () => ({ text: '', contentType: 'text/plain' }),
})

const BODY = '{"id":"evt_1","type":"paid"}'
const webhook = (signature: string, path = '/webhooks/shop') =>
  supertest(app).post(path).set('x-signature', signature).type('json').send(BODY)

describe('answers to providers', () => {
  test.each([
    ['an acknowledgement', () => webhook(hexHmac(BODY, 'shop-secret')), 200],
    ['a refusal', () => webhook('00'), 401],
    ['an unknown source', () => webhook('00', '/webhooks/nobody'), 404],
    ['another method', () => supertest(app).get('/webhooks/shop'), 405],
  ])('%s can be taken for nothing else by a browser', async (_, ask, expected) => {
    const { status, headers } = await ask()

    expect(status).toBe(expected)
    expect(headers['x-content-type-options']).toBe('nosniff')
    expect(headers['content-security-policy']).toBe("default-src 'none'; frame-ancestors 'none'")
  })

  test('what people look at has its own policy', async () => {
    const { headers } = await supertest(app).get('/ops/sign-in')

    expect(headers['content-security-policy']).toContain("script-src 'self'")
    expect(headers['x-content-type-options']).toBe('nosniff')
  })
})

describe('I19 a pool that is full', () => {
  test('is told from a database that is away', async () => {
    const error = await reads.query('select 1').catch((thrown: unknown) => thrown)
    const nowhere = openPool({ url: 'postgres://x@127.0.0.1:1/x', name: 'test-nowhere', max: 1 })
    const away = await nowhere.query('select 1').catch((thrown: unknown) => thrown)
    await nowhere.end()

    // Elsewhere it stays what it was: the same may succeed later.
    expect([isPoolFull(error), isStorageAway(error)]).toEqual([true, true])
    expect([isPoolFull(away), isStorageAway(away)]).toEqual([false, true])
  })

  test('is no outage on the page, whose frame is there all the same', async () => {
    const answer = await supertest(app).get('/ops/sends').set('cookie', cookies.operator)

    expect(answer.status).toBe(503)
    expect(answer.headers['retry-after']).toBe('5')
    expect(answer.text).toContain('Too many are looking at once; try again')
    expect(answer.text).not.toContain('reach the database')
    expect(answer.text).toContain('<a href="/ops/sends"')
    expect(answer.text).toContain('mia')
  })

  test('is 503 busy in the API, and says when to come back', async () => {
    const answer = await supertest(app).get('/v1/sends').set('authorization', `Bearer ${token}`)

    expect([answer.status, answer.body.code]).toEqual([503, 'busy'])
    expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(2)
  })

  test('keeps no webhook waiting', async () => {
    expect((await webhook(hexHmac(BODY, 'shop-secret'))).status).toBe(200)
  })
})
