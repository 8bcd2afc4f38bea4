import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import { beforeEach, describe, expect, test } from 'vitest'
import { doctorCommand } from '../src/cli/doctor.ts'
import { type Check, checkClock, checkDatabase, checkDisk } from '../src/cli/doctor-database.ts'
import { checkConfig, checkEmailApi, checkPublicUrl } from '../src/cli/doctor-setup.ts'
import { checkWork } from '../src/cli/doctor-work.ts'
import { readConfig, type SourceConfig } from '../src/config.ts'
import { type DatabaseFacts, findWork, type Work } from '../src/ops/health-queries.ts'
import type { ProcessRow } from '../src/ops/processes.ts'
import { ConfigError, readSettings } from '../src/settings.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertSend } from './support/ops-rows.ts'
import { run, secrets } from './support/processes.ts'

/** Checks as they are read: `level text`. */
const read = (checks: readonly Check[]) => checks.map(({ level, text }) => `${level}: ${text}`)
const notOk = (checks: readonly Check[]) => read(checks.filter(({ level }) => level !== 'ok'))

const well: DatabaseFacts = {
  version: '18.4',
  version_number: 180_004,
  settings: [
    { name: 'fsync', is_on: true },
    { name: 'full_page_writes', is_on: true },
    { name: 'synchronous_commit', is_on: true },
  ],
  is_replica: false,
  now: new Date('2026-11-29T14:00:00Z'),
  migration: '9999_of_tomorrow',
  has_queue: true,
  extensions: ['pg_trgm', 'plpgsql'],
  connections: 20,
  max_connections: 100,
  data_directory: null,
}

describe('the database', () => {
  test('is told by its version and what keeps commits', () => {
    expect(read(checkDatabase(well))).toEqual([
      'ok: database 18.4',
      'ok: fsync, full_page_writes, synchronous_commit on',
      'attention: the database has 9999_of_tomorrow, which is newer than this program',
      'ok: extensions pg_trgm',
      'ok: 20 of 100 connections in use',
    ])
  })

  test.each([
    [{ version: '14.9', version_number: 140_009 }, 'problem: database 14.9, but Oncehook needs PostgreSQL 15 or later'],
    [{ is_replica: true }, 'problem: database 18.4, a replica that takes no writes'],
    [{ migration: null }, 'problem: the database lacks migrations: run oncehook migrate'],
    [{ migration: '0001_events' }, 'problem: the database lacks migrations: run oncehook migrate'],
    [{ has_queue: false }, 'problem: the job queue is not installed: run oncehook migrate'],
    [{ extensions: ['plpgsql'] }, 'attention: extension pg_trgm is missing: searches are slow'],
    [{ connections: 81 }, 'attention: 81 of 100 connections in use'],
    [
      {
        settings: [
          { name: 'fsync', is_on: false },
          { name: 'full_page_writes', is_on: true },
        ],
      },
      'problem: fsync off: acknowledged events could be lost',
    ],
  ])('with %j is not well', (facts, told) => {
    expect(read(checkDatabase({ ...well, ...facts }))).toContain(told)
  })

  test.each([
    [0, 'ok: clock'],
    [-2_000, 'ok: clock'],
    [2_001, "attention: this clock is 2 s ahead of the database's"],
    [-31_000, "problem: this clock is 31 s behind the database's"],
  ])('%i ms from this clock: %s', (ahead, told) => {
    const now = Date.parse('2026-11-29T14:00:00Z')

    expect(read(checkClock(new Date(now - ahead), now, now))).toEqual([told])
  })

  test('whose clock was read while the answer took long is not said to be wrong', () => {
    const now = Date.parse('2026-11-29T14:00:00Z')

    expect(read(checkClock(new Date(now + 5_000), now, now + 10_000))).toEqual(['ok: clock'])
  })

  test('has a disk, where that can be seen', () => {
    expect(read([...checkDisk(undefined), ...checkDisk(0.5), ...checkDisk(0.19), ...checkDisk(0.04)])).toEqual([
      'ok: disk of the database 50 % full',
      'attention: disk of the database 81 % full',
      'problem: disk of the database 96 % full',
    ])
  })
})

describe('the set-up', () => {
  const settings = (variables: Record<string, string> = {}) => readSettings({ INBOXILI_API_KEY: 'ik_x', ...variables })
  const config = (sources: Record<string, SourceConfig> = {}) =>
    readConfig({ sources: { inboxili: { provider: 'inboxili', secrets: ['inbx_secret_1'] }, ...sources } })

  test('that is complete is told in two lines', () => {
    expect(read(checkConfig(settings(), config()))).toEqual(['ok: INBOXILI_API_KEY', 'ok: configuration: 1 source, 0 rules'])
  })

  test('that can not be used is told by each of its problems', () => {
    const error = new ConfigError(['source inboxili: INBOXILI_WEBHOOK_SECRETS is not set, so nothing could be verified', 'two'])

    expect(read(checkConfig(readSettings({}), error))).toEqual([
      'problem: INBOXILI_API_KEY is not set: no worker starts',
      'problem: source inboxili: INBOXILI_WEBHOOK_SECRETS is not set, so nothing could be verified',
      'problem: two',
    ])
  })

  test('without delivery events, or with unsigned content, is worth a look', () => {
    const without = readConfig({ sources: { plain: { provider: 'razorpay', secrets: ['razorpay_1'] } } })

    expect(notOk(checkConfig(settings(), without))).toEqual([
      'attention: no source of provider inboxili: delivery events come in nowhere, so nothing that is unknown settles by itself',
    ])
    expect(notOk(checkConfig(settings(), config({ xendit: { provider: 'xendit', secrets: ['xendit_token_1'] } })))).toEqual([
      expect.stringMatching(/^attention: source xendit: provider xendit signs nothing .*; give confirm$/),
    ])
  })

  test('I22 in production is held to what production refuses, and no secret is told', () => {
    const guessable = config({ stripe: { provider: 'stripe', secrets: ['whsec_test'] } })

    expect(notOk(checkConfig(settings(), guessable))).toEqual([])
    const told = notOk(checkConfig(settings({ NODE_ENV: 'production', DATABASE_URL: 'postgres://x' }), guessable))
    expect(told).toEqual(['problem: source stripe: a secret is a default or shorter than 8 characters'])
  })

  test('needs a public address, on https in production, that those sources have whose providers sign it', () => {
    const square = config({
      square: { provider: 'square', secrets: ['square_secret_1'], notificationUrl: 'https://hooks.example.com/webhooks/square' },
    })
    const told = (variables: Record<string, string>) => read(checkPublicUrl(settings(variables), square))

    expect(told({})).toEqual(['attention: PUBLIC_URL is not set: nobody is told the whole address to paste'])
    expect(told({ PUBLIC_URL: 'https://hooks.example.com' })).toEqual(['ok: PUBLIC_URL'])
    expect(told({ PUBLIC_URL: 'http://hooks.example.com', NODE_ENV: 'production' })).toEqual([
      'attention: PUBLIC_URL is http: most providers post to https only',
      expect.stringMatching(/^attention: source square verifies for another address than PUBLIC_URL/),
    ])
  })
})

describe('the email API', () => {
  const checkAt = (url: string) => checkEmailApi(readSettings({ INBOXILI_BASE_URL: url }))

  test('is only connected to: not one byte is said to it', async () => {
    const heard: Buffer[] = []
    const ended = Promise.withResolvers<void>()
    const server = net.createServer((socket) => {
      socket.on('data', (bytes) => heard.push(bytes))
      socket.once('close', () => ended.resolve())
      socket.on('error', () => undefined)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo

    const [check] = await checkAt(`http://127.0.0.1:${port}/api/v1`)
    await ended.promise
    server.close()

    expect(check).toMatchObject({ level: 'ok', text: expect.stringMatching(`^email API 127.0.0.1:${port} reached in \\d+ ms$`) })
    expect(Buffer.concat(heard).length).toBe(0)
  })

  test('that refuses, has no name or speaks no TLS is a problem', async () => {
    const server = net.createServer((socket) =>
      socket
        .on('error', () => undefined)
        .resume()
        .end('hello\n'),
    )
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const plain = await checkAt(`https://127.0.0.1:${port}`)
    await new Promise((done) => server.close(done))
    const refused = await checkAt(`http://127.0.0.1:${port}`)

    expect(plain).toMatchObject([{ level: 'problem', text: expect.stringMatching(/can't be reached: ERR_SSL/) }])
    expect(read(refused)).toEqual([`problem: email API 127.0.0.1:${port} can't be reached: ECONNREFUSED`])
  })
})

describe('what runs', () => {
  const row = (given: Partial<ProcessRow> & { kind: ProcessRow['kind'] }): ProcessRow => ({
    id: '00000000-0000-4000-8000-000000000000',
    host: 'box-1',
    pid: 41,
    version: '1.0.0',
    started_at: new Date(0),
    seen_at: new Date(0),
    is_alive: true,
    seconds_since_seen: 3,
    seconds_since_sweep: given.kind === 'worker' ? 12 : null,
    clock_ahead_ms: 5,
    ...given,
  })
  const all: Work = {
    processes: [row({ kind: 'serve' }), row({ kind: 'worker' }), row({ kind: 'worker', seconds_since_sweep: 500 })],
    held_reason: null,
    held_by: null,
    matching: 'auto',
    matching_reason: null,
    oldest_event_seconds: null,
    oldest_send_seconds: 59,
  }

  test('and does what is due is told as such', () => {
    expect(read(checkWork(all))).toEqual([
      'ok: 1 × serve',
      'ok: 2 × worker',
      'ok: last sweep 12 s ago',
      'ok: sending runs',
      'ok: matching by recipient runs',
      'ok: no event waits',
      'ok: the oldest send has waited 59 s',
    ])
  })

  test.each<[string, Partial<Work>, string[]]>([
    [
      'nothing',
      { processes: [] },
      ['problem: no serve runs: webhooks are not answered', 'problem: no worker runs: events and sends wait'],
    ],
    [
      'only a worker that died',
      { processes: [row({ kind: 'serve' }), row({ kind: 'worker', is_alive: false })] },
      ['problem: no worker runs: events and sends wait'],
    ],
    [
      'workers that sweep late, or never did',
      { processes: [row({ kind: 'serve' }), row({ kind: 'worker', seconds_since_sweep: 130 })] },
      ['attention: last sweep 2 min 10 s ago'],
    ],
    [
      'a worker that has not swept',
      { processes: [row({ kind: 'serve' }), row({ kind: 'worker', seconds_since_sweep: null })] },
      ['attention: no worker has swept yet'],
    ],
    [
      'two versions',
      { processes: [row({ kind: 'serve', version: '1.1.0' }), row({ kind: 'worker' })] },
      ['attention: processes of 2 versions run: 1.1.0, 1.0.0'],
    ],
    [
      'a process with a wrong clock',
      { processes: [row({ kind: 'serve', clock_ahead_ms: -90_000 }), row({ kind: 'worker' })] },
      ["problem: the clock of serve 41 on box-1 is 1 min 30 s behind the database's"],
    ],
    [
      'sending that is held, whose queue waits by intent',
      { held_reason: 'key refused', held_by: 'calls', oldest_send_seconds: 9_000 },
      ['problem: sending is held by calls: key refused'],
    ],
    [
      'matching that only suggests',
      { matching: 'suggest', matching_reason: 'event 7' },
      ['attention: matching by recipient only suggests: event 7'],
    ],
    [
      'an old queue',
      { oldest_event_seconds: 61, oldest_send_seconds: 601 },
      ['attention: the oldest event has waited 1 min 1 s', 'problem: the oldest send has waited 10 min 1 s'],
    ],
  ])('as %s is not well', (_name, work, told) => {
    expect(notOk(checkWork({ ...all, ...work }))).toEqual(told)
  })
})

describe('oncehook doctor', async () => {
  const { url, pool } = await testDatabase()
  const environment = {
    ...secrets,
    DATABASE_URL: url,
    ONCEHOOK_CONFIG: 'test/support/processes.config.ts',
    INBOXILI_BASE_URL: 'http://127.0.0.1:9',
  }
  beforeEach(() => pool.query('truncate processes, webhook_events, email_sends cascade'))

  test('finds what waits in the database', async () => {
    await insertEvent(pool, 'evt_1', { status: 'pending', processed_at: null, received_at: new Date(Date.now() - 90_000) })
    await insertSend(pool, 'later', { send_after: new Date(Date.now() + 60_000) })

    const work = await findWork(pool)

    expect(work).toMatchObject({ processes: [], held_reason: null, matching: 'auto', oldest_send_seconds: null })
    expect(Math.abs((work.oldest_event_seconds ?? 0) - 90)).toBeLessThan(10)
  })

  test('says all of it, one line each, by tabs in a pipe, and ends with 1 where there is a problem', async () => {
    const { code, stdout, stderr } = await run(['doctor'], environment)
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => line.split('\t'))

    expect([code, stderr]).toEqual([1, ''])
    expect(lines.map(([level, check]) => `${level} ${check}`)).toEqual(
      expect.arrayContaining([
        'ok database',
        'ok migrations',
        'ok configuration',
        'problem secrets',
        'attention public_url',
        'problem email_api',
        'problem serve',
        'problem worker',
        'ok sending',
      ]),
    )
    for (const secret of [...Object.values(secrets), url]) expect(stdout).not.toContain(secret)
  })

  test('prints an object for programs', async () => {
    const { code, stdout } = await run(['doctor', '--json'], environment)
    const { ok, checks } = JSON.parse(stdout) as { ok: boolean; checks: Check[] }

    expect([code, ok]).toEqual([1, false])
    expect(checks.find(({ check }) => check === 'worker')).toEqual({
      check: 'worker',
      level: 'problem',
      text: 'no worker runs: events and sends wait',
    })
  })

  test('goes on without the database, and without a configuration that can be used', async () => {
    const { code, stdout } = await run(['doctor'], {
      ...environment,
      DATABASE_URL: 'postgres://nobody@127.0.0.1:9/none',
      STRIPE_WEBHOOK_SECRETS: '',
    })

    expect(code).toBe(1)
    expect(stdout).toMatch(/^problem\tdatabase\tthe database does not answer: .*ECONNREFUSED/m)
    expect(stdout).toMatch(/^problem\tconfiguration\tsource stripe: STRIPE_WEBHOOK_SECRETS is not set/m)
    expect(stdout).toMatch(/^problem\temail_api\t/m)
  })

  test('without a database to look at ends with 78', async () => {
    const { code, stderr } = await run(['doctor'], { ...environment, DATABASE_URL: '' }, { cwd: 'test' })

    expect(code).toBe(78)
    expect(stderr).toContain('DATABASE_URL is not set')
  })

  test('marks each line on a terminal, in colours or in ASCII', async () => {
    const settings = { ...readSettings(environment), databaseUrl: url, configPath: '/nowhere.ts' }

    const colourful = await doctorCommand(settings, { width: 80, color: true, unicode: true })
    const plain = await doctorCommand(settings, { width: 80 })

    expect(colourful.stdout.startsWith('\u001b[32m✓ database ')).toBe(true)
    expect(colourful.stdout).toContain('\u001b[31m✕ /nowhere.ts does not exist')
    expect(plain.stdout).toMatch(/^\+ database \d/m)
    expect(plain.stdout).toMatch(/^x no worker runs: events and sends wait$/m)
    expect(plain.stdout).toMatch(/^! PUBLIC_URL|^x \/nowhere/m)
  })
})
