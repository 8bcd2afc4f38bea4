import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { type EventMeta, readConfig, type SourceConfig } from '../src/config.ts'
import { processEvent } from '../src/follow-ups/rules.ts'
import { createLog } from '../src/log.ts'
import { ConfigError, readSettings } from '../src/settings.ts'
import { openConfig } from '../src/start-up.ts'
import { testDatabase } from './support/database.ts'
import { withProvider } from './support/made-up.ts'
import { emptyTables, listen, sha256Hex, signed, sources, storedEvents } from './support/posting.ts'
import { testService } from './support/service.ts'

const database = await testDatabase()
const { pool } = database
const service = await testService(database, { sources })
const { post } = await listen(service.app)

const rule = vi.fn(({ paid_by: to }: { paid_by: string }, { eventId }: EventMeta) => ({
  key: `paid:${eventId}`,
  to,
  from_email: 'billing@example.com',
  subject: 'Paid',
  html_body: 'Paid',
}))
const payment = { paid_by: 'ada@example.com' }

let callsBefore = 0
beforeEach(async () => {
  await emptyTables(database)
  callsBefore = service.sandbox.ledger.length
  rule.mockClear()
})
afterEach(() => void vi.restoreAllMocks())

/** Puts a source with this `confirm` in force. */
function confirmBy(confirm: SourceConfig['confirm'], mode: 'live' | 'test' = 'live') {
  service.config.current = readConfig({
    sources: { ...sources, generic: { ...sources.generic, mode, confirm } },
    followUps: [{ name: 'receipt', source: 'generic', type: 'paid', email: rule }],
  })
}
/** Posts an event; answers its row's ID. */
async function deliver(type = 'paid'): Promise<string> {
  const body = JSON.stringify({ id: 'e1', type, paid_by: 'eve@example.com' })
  await post('/webhooks/generic', body, signed.generic(body))
  return (await storedEvents(database)).at(-1)?.id ?? ''
}
const eventRow = async (id: string) =>
  (await pool.query('select status, error, processed_at is not null as is_closed from webhook_events where id = $1', [id]))
    .rows[0]
const recipients = () => service.sandbox.ledger.slice(callsBefore).map(({ to }) => to)

describe('I3 an event that is made up under a real one’s ID, where nothing is signed,', () => {
  const [forged, real] = ['eve@example.com', 'ada@example.com'].map((it) =>
    JSON.stringify({ id: 'e1', type: 'paid', paid_by: it }),
  )
  const deliverBoth = async () => {
    const unsigned = { contentIsSigned: false, idIsSigned: false, otherBodyIsFurtherEvent: true }
    service.config.current = withProvider(service.config.current, 'generic', unsigned)
    for (const body of [forged, real, forged, real]) await post('/webhooks/generic', body ?? '', signed.generic(body ?? ''))
    expect(await service.drain()).toEqual([])
  }

  test('holds nothing back: the real one is confirmed, and sends', async () => {
    const confirm = vi.fn(async ({ paid_by }: { paid_by: string }, _meta: EventMeta) =>
      paid_by === 'ada@example.com' ? payment : null,
    )
    confirmBy(confirm)
    await deliverBoth()

    expect((await storedEvents(database)).map(({ event_id, status, redeliveries }) => [event_id, status, redeliveries])).toEqual([
      ['e1', 'ignored', 1],
      [`e1:${sha256Hex(real ?? '')}`, 'processed', 1],
    ])
    expect(confirm.mock.calls.map(([, { eventId }]) => eventId)).toEqual(['e1', 'e1'])
    expect(recipients()).toEqual(['ada@example.com'])
  })

  test('makes no second email where both are confirmed by their ID, although the key is made of it', async () => {
    confirmBy(async () => payment)
    await deliverBoth()

    expect((await storedEvents(database)).map(({ status }) => status)).toEqual(['processed', 'processed'])
    expect(recipients()).toEqual(['ada@example.com'])
  })
})

describe('a source that confirms', () => {
  test('has its rules act on what was fetched, not on what was posted', async () => {
    const confirm = vi.fn((_payload: unknown, _meta: EventMeta) => Promise.resolve(payment))
    confirmBy(confirm)
    const id = await deliver()

    expect(await service.drain()).toEqual([])

    const meta = {
      source: 'generic',
      eventId: 'e1',
      type: 'paid',
      occurredAt: null,
      receivedAt: expect.any(Date),
      livemode: null,
      superseded: false,
    }
    expect(confirm.mock.calls).toEqual([[{ id: 'e1', type: 'paid', paid_by: 'eve@example.com' }, meta]])
    expect(rule.mock.calls).toEqual([[payment, meta]])
    expect(recipients()).toEqual(['ada@example.com'])
    expect(await eventRow(id)).toEqual({ status: 'processed', error: null, is_closed: true })
  })

  test.each([[null], [undefined], [false]])('is told %s: the event is closed, and no rule sees it', async (nothing) => {
    confirmBy(async () => nothing)
    const id = await deliver()

    expect(await service.drain()).toEqual([])

    expect(await eventRow(id)).toEqual({ status: 'ignored', error: 'not confirmed', is_closed: true })
    expect(rule).not.toHaveBeenCalled()
    expect(recipients()).toEqual([])
  })

  test('is asked again by a replay, and then sends once', async () => {
    confirmBy(() => null)
    const id = await deliver()
    await service.drain()
    confirmBy(() => payment)

    for (let times = 0; times < 2; times += 1) {
      expect(await service.replay(id)).toEqual({ outcome: 'queued' })
      expect(await service.drain()).toEqual([])
    }

    expect(await eventRow(id)).toEqual({ status: 'processed', error: null, is_closed: true })
    expect(recipients()).toEqual(['ada@example.com'])
  })

  test.each<[string, SourceConfig['confirm'], string]>([
    ['that throws at once', () => void JSON.parse('{'), 'confirm: SyntaxError: '],
    ['that fails later', async () => Promise.reject(new Error('the provider is away')), 'confirm: Error: the provider is away'],
    [
      'that fails over somebody',
      async () => Promise.reject(new Error('no customer eve@example.com, nor Eve+1@example.org')),
      String.raw`confirm: Error: no customer \[address\], nor \[address\]$`,
    ],
    ['that returns true', () => true, 'confirm: TypeError: it must return the payload, or nothing'],
    ['that returns an empty text', async () => '', 'confirm: TypeError: it must return the payload, or nothing'],
  ])('with a function %s is tried again, visibly, and no rule is asked', async (_, confirm, error) => {
    confirmBy(confirm)
    const id = await deliver()
    const failures = await service.drain()
    const shown = await eventRow(id)
    await service.process(id, true)
    const failed = await eventRow(id)

    confirmBy(() => payment)
    await service.replay(id)
    await service.drain()

    expect(failures.map(String)).toEqual([`Error: event ${id} is not processed yet; the queue tries again`])
    expect(shown).toEqual({ status: 'pending', error: expect.stringMatching(`^${error}`), is_closed: false })
    expect(failed).toEqual({ status: 'failed', error: expect.stringMatching(`^${error}`), is_closed: false })
    expect(rule).toHaveBeenCalledTimes(1)
    expect(recipients()).toEqual(['ada@example.com'])
  })

  test('with a function that never answers is given up after its time', async () => {
    const real = globalThis.setTimeout
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms?: number, ...rest: []) => {
      // The database's clients have timers of that length, too.
      if (ms === 10_000 && new Error().stack?.includes('answers.ts')) queueMicrotask(run)
      return real(run, ms, ...rest)
    }) as typeof setTimeout)
    confirmBy(() => new Promise(() => undefined))
    const id = await deliver()

    await expect(service.process(id)).rejects.toThrow()

    expect(await eventRow(id)).toMatchObject({ status: 'pending', error: 'confirm: Error: it gave no answer within 10 s' })
    expect(rule).not.toHaveBeenCalled()
  })

  test('is asked for no event that no rule wants, or of the other mode', async () => {
    const confirm = vi.fn(() => payment)
    confirmBy(confirm)
    const unwanted = await deliver('unpaid')
    await service.replay(unwanted)
    await service.drain()
    await pool.query('truncate webhook_events cascade')
    const ofTest = await deliver()
    await pool.query('update webhook_events set livemode = false')
    await service.drain()

    expect(confirm).not.toHaveBeenCalled()
    expect(await eventRow(ofTest)).toMatchObject({ status: 'ignored', error: null })
  })

  test('fetches outside of any transaction', async () => {
    const seen: unknown[] = []
    confirmBy(async () => {
      const { rows } = await pool.query(
        `select count(*)::int as open from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`,
      )
      seen.push(...rows)
      return payment
    })
    await deliver()

    await service.drain()

    expect(seen).toEqual([{ open: 0 }])
  })

  test.each([
    ['is told nothing after the other was told', [payment, null], { status: 'processed', error: null }, 1],
    ['is told after the other was told nothing', [null, payment], { status: 'ignored', error: 'not confirmed' }, 0],
  ] as const)('by two workers, one of which %s, does what the first to end was told', async (_, answers, row, emails) => {
    let asked = 0
    const both = Promise.withResolvers<void>()
    const firstHasEnded = Promise.withResolvers<void>()
    confirmBy(async () => {
      const index = asked++
      if (index === 1) both.resolve()
      await (index === 0 ? both : firstHasEnded).promise
      return answers[index]
    })
    const id = await deliver()

    const workers = [service.process(id), service.process(id)]
    await Promise.race(workers)
    firstHasEnded.resolve()
    await Promise.all(workers)
    await service.drain()

    expect(asked).toBe(2)
    expect(await eventRow(id)).toEqual({ ...row, is_closed: true })
    expect(recipients()).toHaveLength(emails)
  })

  test('by eight workers at once sends one email', async () => {
    confirmBy(async () => payment)
    const id = await deliver()

    await Promise.all(Array.from({ length: 8 }, () => service.process(id)))
    await service.drain()

    expect(recipients()).toEqual(['ada@example.com'])
  })

  test('is asked anew after a crash between its answer and the commit', async () => {
    const confirm = vi.fn(() => payment)
    confirmBy(confirm)
    const id = await deliver()
    const enqueue = async () => Promise.reject(Object.assign(new Error('the connection broke'), { code: '08006' }))
    const crash = { pool, config: () => service.config.current, log: createLog('silent', 'test'), enqueue }
    await expect(processEvent(crash, id, false)).rejects.toThrow('the connection broke')
    const left = await eventRow(id)

    await service.drain()

    expect(left).toEqual({ status: 'pending', error: null, is_closed: false })
    expect(confirm).toHaveBeenCalledTimes(2)
    expect(recipients()).toEqual(['ada@example.com'])
  })

  test('forgets what a rule failed at once nothing is confirmed any more', async () => {
    rule.mockImplementationOnce(() => {
      throw new Error('no such field')
    })
    confirmBy(() => payment)
    const id = await deliver()
    await service.drain()

    confirmBy(() => null)
    await service.drain()

    expect(await eventRow(id)).toMatchObject({ status: 'ignored', error: 'not confirmed' })
    expect((await pool.query('select from follow_ups')).rows).toEqual([])
  })
})

describe('the configuration', () => {
  const mail = { provider: 'chargebee', secrets: ['user:pass'] }
  const names = { provider: 'mollie', classic: true }
  const warning =
    'source mail: provider chargebee signs nothing of what an event says, so that whoever has its credential or one of its requests can make one up; give confirm'
  const problemsOf = (config: object) => {
    try {
      return readConfig({ sources: config }).warnings
    } catch (error) {
      return error instanceof ConfigError ? error.problems : error
    }
  }

  test('is refused where an event only names an object that nobody fetches, and where confirm is no function', () => {
    expect(problemsOf({ names })).toEqual(['source names: provider mollie signs nothing and only names an object; give confirm'])
    expect(problemsOf({ names: { ...names, confirm: 'yes' } })).toEqual([expect.stringContaining('must be a function')])
    expect(problemsOf({ names: { ...names, confirm: null } })).toEqual([expect.stringContaining('must be a function')])
  })

  test('warns of content that nothing signs and nobody confirms, and of nothing else', () => {
    const confirm = () => null

    expect(problemsOf({ mail, names: { ...names, confirm }, confirmed: { ...mail, confirm }, ...sources })).toEqual([warning])
  })

  test('has its warnings logged at start and when it is read again', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'oncehook-confirm-test-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const path = join(folder, 'config.mjs')
    writeFileSync(path, `export default { sources: ${JSON.stringify({ mail })} }`)
    vi.stubEnv('ONCEHOOK_CONFIG', path)
    const logged: unknown[] = []
    const again = Promise.withResolvers<void>()
    const log = {
      warn: (line: unknown) => logged.push(line),
      info: () => again.resolve(),
      error: () => again.resolve(),
    } as unknown as ReturnType<typeof createLog> // only these three are called

    const config = await openConfig(readSettings(), log)
    process.emit('SIGHUP')
    await again.promise
    config.close()
    vi.unstubAllEnvs()

    expect(logged).toEqual([warning, warning])
  })
})
