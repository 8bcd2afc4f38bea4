import { beforeEach, describe, expect, test } from 'vitest'
import { type ReplayOptions, replayCommand, showRunCommand, stopRunCommand } from '../src/cli/replay.ts'
import { readConfig } from '../src/config.ts'
import { insertEvent, insertSend } from './support/ops-rows.ts'
import { emptyTables, sources } from './support/posting.ts'
import { patientDatabase } from './support/sends.ts'

const database = await patientDatabase()
const { pool, url } = database
const config = readConfig({
  sources,
  followUps: [
    {
      source: 'generic',
      type: 'invoice.paid',
      email: ({ id }: { id: string }) => ({
        key: `paid:${id}`,
        to: 'ada@example.com',
        from_email: 'billing@example.com',
        subject: 'Paid',
        html_body: 'Paid',
      }),
    },
  ],
})

const replay = (id: string | undefined, options: ReplayOptions = {}) =>
  replayCommand(pool, url, config, id, { by: 'mia', unicode: true, ...options })
const audits = async () => (await pool.query('select actor, via, action from audit_log order by id')).rows
const jobs = async () => (await pool.query(`select count(*)::int as count from pgboss.job`)).rows[0].count

const ids: string[] = []
beforeEach(async () => {
  await emptyTables(database)
  await pool.query('truncate runs, audit_log')
  ids.length = 0
  for (const id of ['e1', 'e2', 'e3']) ids.push(await insertEvent(pool, id, { source: 'generic', status: 'ignored' }))
  await insertSend(pool, 'paid:e1', { state: 'needs_review' })
})

describe('events replay', () => {
  test('as a dry run says what it would do, and how to do it', async () => {
    const { stdout, stderr, exitCode } = await replay(undefined, { source: 'generic', dryRun: true })
    const { rows } = await pool.query<{ id: string }>('select id from runs')
    const done = await replay(undefined, { plan: rows[0]?.id })

    expect(stdout.split('\n')).toEqual([
      `Planned   run ${rows[0]?.id}   3 events`,
      'Events:',
      '  3 want emails',
      'Emails:',
      '  2 would be sent',
      '  1 held by a send: needs a decision',
      '',
    ])
    expect({ stderr, exitCode }).toEqual({
      stderr: `To carry it out within 15 minutes: oncehook events replay --plan ${rows[0]?.id}\n`,
      exitCode: 0,
    })
    expect(done.stdout.split('\n').map((line) => line.replace(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/, 'then'))).toEqual([
      `Done   run ${rows[0]?.id}   3 events`,
      '3 gone through: 3 to be processed again',
      'Now: 3 waiting',
      'Started then UTC by mia',
      '',
    ])
    expect([await jobs(), await audits()]).toEqual([3, [{ actor: 'mia', via: 'cli', action: 'replay' }]])
  })

  test('without it carries out what the filter takes', async () => {
    const { stdout } = await replay(undefined, { eventId: 'e1, e3', status: 'ignored,failed', since: '1h', json: true })

    expect(JSON.parse(stdout)).toMatchObject({ state: 'done', events: 2, queued: 2, filter: { event_ids: ['e1', 'e3'] } })
    expect(await jobs()).toBe(2)
  })

  test('of one event does as the API, and fails where that would', async () => {
    const [id = ''] = ids
    const first = await replay(id)
    const second = await replay(id)
    const none = await replay('999999')
    const wrong = await replay('x')

    expect(first).toEqual({ stdout: `event ${id}: waits to be processed again\n`, stderr: '', exitCode: 0 })
    expect(second).toEqual({ stdout: '', stderr: `oncehook: event ${id}: waits to be processed already\n`, exitCode: 1 })
    expect([none.exitCode, none.stderr, wrong.exitCode]).toEqual([1, 'oncehook: event 999999: no such event\n', 1])
    expect([await jobs(), await audits()]).toEqual([1, [{ actor: 'mia', via: 'cli', action: 'replay' }]])
  })

  test.each<[string | undefined, ReplayOptions]>([
    [undefined, {}],
    ['1', { source: 'generic' }],
    ['1', { plan: 'x' }],
    [undefined, { plan: 'x', type: 'paid' }],
    ['1', { dryRun: true }],
    [undefined, { plan: 'x', dryRun: true }],
    [undefined, { status: 'pending' }],
    [undefined, { since: 'yesterday' }],
  ])('of %s with %j is wrong usage', async (id, options) => {
    expect(await replay(id, options)).toMatchObject({ stdout: '', stderr: expect.stringMatching(/^oncehook: --/), exitCode: 2 })
    expect(await jobs()).toBe(0)
  })

  test('of a plan that is not there says so', async () => {
    const expected = { stdout: '', stderr: 'oncehook: there is no such plan, or it has expired\n', exitCode: 1 }

    expect(await replay(undefined, { plan: 'x' })).toEqual(expected)
    expect(await replay(undefined, { plan: '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11' })).toEqual(expected)
  })
})

describe('runs', () => {
  test('show says how far one is, and stop ends it', async () => {
    const run = JSON.parse((await replay(undefined, { source: 'generic', dryRun: true, json: true })).stdout)
    const options = { unicode: true }

    const shown = await showRunCommand(pool, run.plan, options)
    const stopped = await stopRunCommand(pool, run.plan, { ...options, by: 'noa' })
    const tooLate = await stopRunCommand(
      pool,
      JSON.parse((await replay(undefined, { source: 'generic', json: true })).stdout).id,
      options,
    )

    expect(run.id).toBe(run.plan)
    expect(shown.stdout).toMatch(/^Planned {3}run [\w-]+ {3}3 events\n/)
    expect(stopped.stdout).toMatch(
      /^Stopped {3}run [\w-]+ {3}3 events\n0 gone through: 0 to be processed again\nStopped .* UTC by noa\n$/,
    )
    expect(tooLate).toEqual({ stdout: '', stderr: 'oncehook: it has ended already\n', exitCode: 1 })
    expect(await showRunCommand(pool, 'x', options)).toEqual({
      stdout: '',
      stderr: 'oncehook: no run has this ID\n',
      exitCode: 1,
    })
  })
})
