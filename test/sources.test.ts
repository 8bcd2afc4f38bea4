import express from 'express'
import { pino } from 'pino'
import supertest from 'supertest'
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { listSourcesCommand, showSourceCommand } from '../src/cli/sources.ts'
import { readConfig, type UserConfig } from '../src/config.ts'
import { createFingerprints, readFingerprintKey } from '../src/events/fingerprint.ts'
import { createRecorder } from '../src/events/record.ts'
import { createRefusals } from '../src/events/refusals.ts'
import { eventRoutes } from '../src/events/routes.ts'
import { createTallies } from '../src/events/tallies.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createMetrics } from '../src/ops/metrics.ts'
import { opsRoutes } from '../src/ops/routes.ts'
import type { SourceRow } from '../src/ops/source-queries.ts'
import { createToken } from '../src/ops/tokens.ts'
import { testDatabase } from './support/database.ts'
import { holdToDeclarations } from './support/declared.ts'
import { emptyTables, listen, signed } from './support/posting.ts'

const database = await testDatabase()
const { pool, url } = database
const NOON = Date.parse('2026-11-29T12:00:00Z')
const DAY_MS = 24 * 60 * 60_000
const clock = { now: NOON }
const stripeWith = (...secrets: string[]): UserConfig => ({ sources: { stripe: { provider: 'stripe', secrets } } })
const config = { current: readConfig(stripeWith('whsec_test_A')) }

const logged: string[] = []
const log = pino({}, { write: (line) => void logged.push(line) })
const jobs = await openJobs(url)
const fingerprints = createFingerprints(await readFingerprintKey(pool))
const tallies = createTallies(pool, log, 3_600_000, () => clock.now)
const metrics = createMetrics()
const refusals = createRefusals({
  explain: (_source, _request, reason) => reason,
  count(source, cause) {
    tallies.answered(source, 'refused', cause)
    metrics.refused(source, cause)
  },
})
const shared = { log, config: () => config.current, fingerprints }
const app = express()
  .use(
    eventRoutes({
      ...shared,
      recorder: createRecorder(pool, jobs),
      isWanted: () => false,
      keys: { ring: () => () => 'unknown', fetch: async () => () => 'unknown' },
      tallies,
      refusals,
      now: () => clock.now,
      acknowledged: metrics.acknowledged,
    }),
  )
  .use(
    holdToDeclarations(),
    opsRoutes({
      ...shared,
      pool,
      reads: pool,
      runs: {} as never, // its routes have tests of their own
      replay: async () => ({ outcome: 'not_found' }),
      enqueueSends: jobs.enqueueSends,
      publicUrl: 'https://hooks.example.com/',
      now: () => new Date(clock.now),
    }),
  )
const { post } = await listen(app)
const token = await createToken(pool, { name: 'grafana', role: 'reader' })
afterAll(() => tallies.stop())
beforeEach(async () => {
  await tallies.stop()
  await pool.query('truncate source_minutes, source_secrets')
  await emptyTables(database)
  clock.now = NOON
})

const read = (path: string) => supertest(app).get(path).set('authorization', `Bearer ${token}`)
/** One source as the API has it, once everything that was counted is written. */
async function sourceNow(name = 'stripe'): Promise<SourceRow> {
  for (let turn = 0; turn < 50; turn += 1) await new Promise<void>((done) => setImmediate(done))
  await tallies.stop()
  return (await read(`/v1/sources/${name}`)).body
}
let events = 0
async function postWith(secret: string, body = JSON.stringify({ id: `evt_${++events}`, type: 'invoice.paid' })): Promise<number> {
  const { status } = await post('/webhooks/stripe', body, signed.stripe(body, clock.now, secret))
  return status
}
const secretsOf = ({ secrets }: SourceRow) => secrets.map(({ position, verified, advice }) => [position, verified, advice])

describe('GET /v1/sources', () => {
  test('has a configured source that has seen nothing, with zeros', async () => {
    config.current = readConfig(stripeWith('whsec_test_A'))

    const { body } = await read('/v1/sources')

    const [fingerprint] = fingerprints(['whsec_test_A'])
    expect(body).toEqual({
      sources: [
        {
          name: 'stripe',
          is_configured: true,
          provider: 'stripe',
          title: 'Stripe',
          mode: 'live',
          url: 'https://hooks.example.com/webhooks/stripe',
          content_is_signed: true,
          id_is_signed: true,
          confirm: false,
          warnings: [],
          last_verified_at: null,
          last_24_hours: { accepted: 0, duplicate: 0, quarantined: 0, refused: 0, other: 0 },
          conflicts: 0,
          refused: [],
          secrets: [
            {
              position: 1,
              fingerprint,
              verified: 0,
              first_verified_at: null,
              last_verified_at: null,
              is_configured: true,
              advice: 'never used',
            },
          ],
        },
      ],
    })
  })

  test('counts the requests of the last 24 hours by their answer', async () => {
    config.current = readConfig(stripeWith('whsec_test_A'))
    clock.now = NOON - DAY_MS - 60_000
    await postWith('whsec_test_A')
    clock.now = NOON
    const body = JSON.stringify({ id: 'evt_same', type: 'invoice.paid' })
    for (let time = 0; time < 3; time += 1) await postWith('whsec_test_A', body)
    await postWith('whsec_test_A', 'no JSON')
    await post('/webhooks/stripe', body, { 'content-encoding': 'zstd' })

    expect(await sourceNow()).toMatchObject({
      last_verified_at: '2026-11-29T12:00:00.000Z',
      last_24_hours: { accepted: 1, duplicate: 2, quarantined: 1, refused: 0, other: 1 },
      secrets: [{ verified: 5, first_verified_at: '2026-11-28T11:59:00.000Z', last_verified_at: '2026-11-29T12:00:00.000Z' }],
    })
  })

  test('tells why requests were refused, the most frequent cause first', async () => {
    config.current = readConfig(stripeWith('whsec_test_A'))
    clock.now = NOON + 61_000
    await post('/webhooks/stripe', '{}', { 'stripe-signature': `v1=${'a'.repeat(64)}` })
    for (let time = 0; time < 7; time += 1) await postWith('another secret')
    for (let time = 0; time < 8; time += 1) await post('/webhooks/stripe', '{}')

    const { refused, last_24_hours, last_verified_at } = await sourceNow()

    expect(refused).toEqual([
      { cause: 'missing_signature', explanation: expect.any(String), count: 8, last_at: '2026-11-29T12:01:00.000Z' },
      { cause: 'signature_mismatch', explanation: expect.any(String), count: 7, last_at: '2026-11-29T12:01:00.000Z' },
      { cause: 'malformed_signature', explanation: expect.any(String), count: 1, last_at: '2026-11-29T12:01:00.000Z' },
    ])
    expect(last_24_hours.refused).toBe(16)
    expect(last_verified_at).toBeNull()
    expect(await metrics.text(pool)).toContain('oncehook_webhook_refusals_total{source="stripe",cause="signature_mismatch"} 7')
  })

  test('tells when a source was last heard of that needs no secret', async () => {
    config.current = readConfig(stripeWith('whsec_test_A'))
    tallies.verified('stripe', '')

    const { last_verified_at, secrets } = await sourceNow()

    expect(last_verified_at).toBe('2026-11-29T12:00:00.000Z')
    expect(secrets.map(({ advice }) => advice)).toEqual(['never used'])
  })

  test('has the warnings of its own source only, and whether it confirms', async () => {
    config.current = {
      ...readConfig({ sources: { shop: { provider: 'stripe', secrets: ['whsec_test_A'], confirm: () => null } } }),
      warnings: ['source shop: look at this', 'source shop2: not at this'],
    }

    expect(await sourceNow('shop')).toMatchObject({ confirm: true, warnings: ['look at this'] })
  })

  test('has a source that left the configuration as long as something is known of it', async () => {
    config.current = readConfig(stripeWith('whsec_test_A'))
    await postWith('whsec_test_A')
    config.current = readConfig({ sources: { github: { provider: 'github', secrets: ['gh_test'] } } })

    const gone = await sourceNow()

    expect(gone).toMatchObject({
      is_configured: false,
      provider: null,
      title: null,
      mode: null,
      content_is_signed: null,
      id_is_signed: null,
      confirm: false,
      last_24_hours: { accepted: 1 },
      secrets: [{ position: null, is_configured: false, advice: 'removed' }],
    })
    expect((await read('/v1/sources')).body.sources.map(({ name }: SourceRow) => name)).toEqual(['github', 'stripe'])
    expect((await read('/v1/sources/nowhere')).status).toBe(404)
    expect((await read('/v1/sources/%00')).status).toBe(404)
  })
})

describe('C-15 a rotation, seen from outside', () => {
  test('both secrets verify, each under its own fingerprint, until the old one is removed', async () => {
    config.current = readConfig(stripeWith('whsec_test_A', 'whsec_test_B'))
    const statuses = [await postWith('whsec_test_A'), await postWith('whsec_test_B')]
    const both = await sourceNow()
    config.current = readConfig(stripeWith('whsec_test_B'))
    statuses.push(await postWith('whsec_test_A'))
    const one = await sourceNow()

    expect(statuses).toEqual([200, 200, 401])
    expect(secretsOf(both)).toEqual([
      [1, 1, 'in use'],
      [2, 1, 'in use'],
    ])
    const [a, b] = both.secrets.map(({ fingerprint }) => fingerprint)
    expect(a).toMatch(/^[0-9a-f]{8}$/)
    expect(a).not.toBe(b)
    expect(one.secrets.map(({ position, fingerprint, advice }) => [position, fingerprint, advice])).toEqual([
      [1, b, 'in use'],
      [null, a, 'removed'],
    ])
    const { rows } = await pool.query('select secret_index, secret_fingerprint from webhook_events order by id')
    expect(rows).toEqual([
      { secret_index: 0, secret_fingerprint: a },
      { secret_index: 1, secret_fingerprint: b },
    ])
  })

  test('the old one is safe to remove once the new one has verified and 7 days have gone without the old', async () => {
    config.current = readConfig(stripeWith('whsec_new', 'whsec_old'))
    await postWith('whsec_old')
    const advice = async () => (await sourceNow()).secrets.map((secret) => secret.advice)

    const before = await advice()
    clock.now = NOON + 8 * DAY_MS
    const unreplaced = await advice()
    await postWith('whsec_new')
    const replaced = await advice()
    await postWith('whsec_old')
    const usedAgain = await advice()

    expect({ before, unreplaced, replaced, usedAgain }).toEqual({
      before: ['never used', 'in use'],
      unreplaced: ['never used', 'in use'],
      replaced: ['in use', 'safe to remove'],
      usedAgain: ['in use', 'in use'],
    })
  })

  test('the newest is never safe to remove, nor an old one that was used after it, nor any within 7 days', async () => {
    config.current = readConfig(stripeWith('whsec_new', 'whsec_old'))
    const advice = async () => (await sourceNow()).secrets.map((secret) => secret.advice)
    await postWith('whsec_new')
    clock.now = NOON + 1_000
    await postWith('whsec_old')

    clock.now = NOON + 8 * DAY_MS
    const bothIdle = await advice()
    await postWith('whsec_old')
    const onlyOldUsed = await advice()
    clock.now += 1
    await postWith('whsec_new')
    clock.now = NOON + 15 * DAY_MS
    const onTheDay = await advice()
    clock.now += 1
    const after = await advice()

    expect({ bothIdle, onlyOldUsed, onTheDay, after }).toEqual({
      bothIdle: ['in use', 'in use'],
      onlyOldUsed: ['in use', 'in use'],
      onTheDay: ['in use', 'in use'],
      after: ['in use', 'safe to remove'],
    })
  })
})

describe('oncehook sources', () => {
  const terminal = { width: 150, unicode: true }
  const given = () => ({ config: config.current, publicUrl: undefined })
  beforeEach(async () => {
    vi.useFakeTimers({ now: NOON + 8 * DAY_MS, toFake: ['Date'] })
    config.current = readConfig({
      sources: {
        ...stripeWith('whsec_new', 'whsec_old').sources,
        github: { provider: 'github', secrets: ['gh_test'], mode: 'test' },
      },
    })
    await postWith('whsec_old')
    clock.now = NOON + 8 * DAY_MS
    await postWith('whsec_new')
    await postWith('another secret')
    await sourceNow()
  })
  afterEach(() => vi.useRealTimers())

  test('list is a table on a terminal', async () => {
    const { stdout, stderr, exitCode } = await listSourcesCommand(pool, given(), terminal)

    expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['SOURCE', 'PROVIDER', 'VERIFIED', 'NEW', 'AGAIN', 'QUARANTINED', 'OTHER', 'REFUSED', 'SECRETS'],
      ['stripe', 'stripe', '0 s ago', '1', '0', '0', '0', '50.0 % (1 of 2)', '1 in use, 2 safe to remove'],
      ['github', 'github', 'never', '0', '0', '0', '0', '0', '1 never used'],
      [''],
    ])
    expect({ stderr, exitCode }).toEqual({ stderr: '2 sources\n', exitCode: 0 })
  })

  test('list is tab-separated in a pipe, and the API’s own object as JSON', async () => {
    const piped = await listSourcesCommand(pool, given(), {})
    const json = await listSourcesCommand(pool, { ...given(), publicUrl: 'https://hooks.example.com' }, { json: true })

    expect(piped.stdout).toBe(
      'stripe\tstripe\t2026-12-07T12:00:00.000Z\t1\t0\t0\t1\t0\t1 in use, 2 safe to remove\n' +
        'github\tgithub\t\t0\t0\t0\t0\t0\t1 never used\n',
    )
    expect(JSON.parse(json.stdout)).toEqual((await read('/v1/sources')).body)
  })

  test('show says what to do with each secret and why requests were refused', async () => {
    const { stdout, exitCode } = await showSourceCommand(pool, given(), 'stripe', terminal)
    const [current, old] = fingerprints(['whsec_new', 'whsec_old'])

    expect(stdout.split('\n')).toEqual([
      'stripe   Stripe   live mode   /webhooks/stripe',
      'Last verified 2026-12-07 12:00:00 UTC',
      'Last 24 hours: 1 accepted · 0 duplicate · 0 quarantined · 1 refused · 0 other · 0 conflicts',
      expect.stringMatching(/^ {2}refused 1 time, last about 2026-12-07 12:00:00 UTC: signature_mismatch: ./),
      `  secret 1  ${current}  in use: verified 1 time, last 2026-12-07 12:00:00 UTC`,
      `  secret 2  ${old}  safe to remove: verified 1 time, last 2026-11-29 12:00:00 UTC`,
      '',
    ])
    expect(exitCode).toBe(0)
  })

  test('show of a source that there is none of ends with 1 and names it', async () => {
    expect(await showSourceCommand(pool, given(), 'shop', terminal)).toEqual({
      stdout: '',
      stderr: 'oncehook: no source has the name shop\n',
      exitCode: 1,
    })
  })
})

test('I17 neither API nor command, metric nor log tells a secret, an option’s value or anything of a refused request', async () => {
  const canaries = ['whsec_canary_1', 'gen_canary_2', 'x-canary-3', 'body-canary-4', 'header-canary-5', 'query-canary-6']
  config.current = readConfig({
    sources: {
      stripe: { provider: 'stripe', secrets: ['whsec_canary_1'] },
      shop: {
        provider: 'generic',
        secrets: ['gen_canary_2'],
        header: 'x-canary-3',
        algorithm: 'sha256',
        encoding: 'hex',
        id: 'id',
        type: 'type',
      },
    },
  })
  logged.length = 0
  await postWith('whsec_canary_1')
  await post('/webhooks/stripe?query-canary-6', '{"id":"body-canary-4"}', { 'stripe-signature': 'header-canary-5' })
  await post('/webhooks/shop?query-canary-6', '{"id":"body-canary-4"}', { 'x-canary-3': 'header-canary-5' })
  await sourceNow()

  const told = [
    (await read('/v1/sources')).text,
    (await read('/v1/sources/shop')).text,
    (await listSourcesCommand(pool, { config: config.current, publicUrl: undefined }, { width: 200 })).stdout,
    (await showSourceCommand(pool, { config: config.current, publicUrl: undefined }, 'shop', { width: 200 })).stdout,
    await metrics.text(pool),
    ...logged,
  ].join('\n')
  const { rows } = await pool.query<{ row: string }>(
    `select to_jsonb(source_minutes)::text as row from source_minutes union all select to_jsonb(source_secrets)::text from source_secrets`,
  )

  expect(logged.map((line) => (JSON.parse(line) as { result: string }).result)).toEqual(['accepted', 'refused', 'refused'])
  for (const canary of canaries) expect(told + rows.map(({ row }) => row).join(), canary).not.toContain(canary)
})
