import { PassThrough } from 'node:stream'
import { describe, expect, test } from 'vitest'
import { readNewPassword } from '../src/cli/password-input.ts'
import {
  createUserCommand,
  disableUserCommand,
  enableUserCommand,
  listUsersCommand,
  userLinkCommand,
  userPasswordCommand,
  userRoleCommand,
} from '../src/cli/user.ts'
import { createPasswords } from '../src/ops/passwords.ts'
import { startSessionByLink } from '../src/ops/sessions.ts'
import { signIn } from '../src/ops/sign-in.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

const options = { by: 'root', unicode: true }
const typed = (password: string) => ({ readPassword: async () => ({ password }) })
const signsIn = (name: string, password: string) =>
  signIn({ pool, passwords: createPasswords() }, { name, password, address: '192.0.2.1' })

describe('the first operator of a new service', () => {
  test('the list says how to make one', async () => {
    expect(await listUsersCommand(pool, { width: 80 })).toEqual({
      stdout: '',
      stderr: 'Nobody can sign in yet: oncehook user create NAME --role operator\n',
      exitCode: 0,
    })
  })

  test('is made with a password and signs in with it', async () => {
    const made = await createUserCommand(pool, 'Mia', { ...options, role: 'operator' }, typed('correct horse battery'))

    expect(made).toEqual({ stdout: '✓ Mia can sign in as operator.\n', stderr: '', exitCode: 0 })
    expect(await signsIn('mia', 'correct horse battery')).toMatchObject({ outcome: 'signed_in' })
  })

  test('is made with a one-time link, alone on stdout', async () => {
    const made = await createUserCommand(
      pool,
      'linked',
      { ...options, role: 'operator' },
      { link: { base: 'https://hooks.example.com/' } },
    )

    const [, code = ''] = /^https:\/\/hooks\.example\.com\/ops\/sign-in\?code=([\w-]{43})\n$/.exec(made.stdout) ?? []
    expect({ ...made, stdout: '' }).toEqual({ stdout: '', stderr: 'Signs linked in once, within 15 minutes.\n', exitCode: 0 })
    expect(await startSessionByLink(pool, code)).toBeDefined()
  })

  test('a taken name asks for no password and changes nothing', async () => {
    let asked = 0
    const readPassword = async () => {
      asked += 1
      return { password: 'another long one' }
    }

    const made = await createUserCommand(pool, 'mIA', { ...options, role: 'reader' }, { readPassword })

    expect(made).toEqual({ stdout: '', stderr: 'oncehook: somebody is named mIA already, however it is written\n', exitCode: 1 })
    expect(asked).toBe(0)
  })

  test('a wrong name, role or password is a usage error and makes nobody', async () => {
    const wrong = [
      await createUserCommand(pool, 'a\u202eb', { ...options, role: 'reader' }, typed('correct horse battery')),
      await createUserCommand(pool, 'fine', { ...options, role: 'sender' }, typed('correct horse battery')),
      await createUserCommand(
        pool,
        'fine',
        { ...options, role: 'reader' },
        { readPassword: async () => ({ problem: 'too short' }) },
      ),
    ]

    expect(wrong.map(({ exitCode, stdout }) => [exitCode, stdout])).toEqual([
      [2, ''],
      [2, ''],
      [2, ''],
    ])
    expect(wrong[2]?.stderr).toBe('oncehook: --password: too short\n')
    expect((await pool.query(`select from people where name = 'fine'`)).rowCount).toBe(0)
  })
})

describe('changing people by the command line', () => {
  test('disable, enable and role say what they did, and what was so before', async () => {
    await createUserCommand(pool, 'bob', { ...options, role: 'reader' }, typed('correct horse battery'))

    const said = [
      await disableUserCommand(pool, 'BOB', { ...options, reason: 'left' }),
      await disableUserCommand(pool, 'bob', options),
      await userLinkCommand(pool, 'bob', { ...options, base: 'http://x' }),
      await enableUserCommand(pool, 'bob', options),
      await userRoleCommand(pool, 'bob', 'operator', options),
      await userRoleCommand(pool, 'bob', 'operator', options),
    ]

    expect(said.map(({ stdout, stderr, exitCode }) => [stdout || stderr, exitCode])).toEqual([
      ['✓ bob is signed out and can sign in no more.\n', 0],
      ['✓ bob was disabled before.\n', 0],
      ["oncehook: bob is disabled: oncehook user enable 'bob'\n", 1],
      ['✓ bob can sign in again.\n', 0],
      ['✓ bob is operator now.\n', 0],
      ['✓ bob was operator before.\n', 0],
    ])
    const { rows } = await pool.query(`select actor, via, reason from audit_log where action = 'disable_person'`)
    expect(rows).toEqual([{ actor: 'root', via: 'cli', reason: 'left' }])
  })

  test('the last operator stays, and an unknown name is said so', async () => {
    await disableUserCommand(pool, 'bob', options)
    await disableUserCommand(pool, 'linked', options)

    expect(await disableUserCommand(pool, 'mia', options)).toEqual({
      stdout: '',
      stderr: 'oncehook: Mia is the last operator who can sign in; make somebody else one first\n',
      exitCode: 1,
    })
    expect(await userRoleCommand(pool, 'mia', 'reader', options)).toMatchObject({ exitCode: 1 })
    expect(await userRoleCommand(pool, 'mia', 'king', options)).toMatchObject({ exitCode: 2 })
    expect(await disableUserCommand(pool, 'no\u0007body', options)).toEqual({
      stdout: '',
      stderr: 'oncehook: nobody is named no<U+0007>body\n',
      exitCode: 1,
    })
  })

  test('another password works at once, and the one before no more', async () => {
    const said = await userPasswordCommand(pool, 'mia', options, async () => ({ password: 'a second long one' }))

    expect(said).toEqual({ stdout: '✓ Mia has another password and is signed out everywhere.\n', stderr: '', exitCode: 0 })
    expect(await signsIn('mia', 'correct horse battery')).toEqual({ outcome: 'refused' })
    expect(await signsIn('mia', 'a second long one')).toMatchObject({ outcome: 'signed_in' })
  })

  test('the list is a table for people, whole values for pipes, and never a hash', async () => {
    await pool.query(`update people set created_at = '2026-11-01T10:00:00Z', last_signed_in_at = case name when 'Mia' then '2026-11-29T14:02:07Z'::timestamptz end,
      disabled_at = case when disabled_at is not null then '2026-11-02T10:00:00Z'::timestamptz end`)

    const { stdout: table, stderr } = await listUsersCommand(pool, { width: 100, unicode: true })
    const { stdout: piped } = await listUsersCommand(pool, {})
    const { stdout: json } = await listUsersCommand(pool, { json: true })

    expect(table).toBe(
      [
        'NAME    ROLE      SIGNS IN BY  LAST TIME (UTC)      SINCE (UTC)',
        'Mia     operator  password     2026-11-29 14:02:07  2026-11-01 10:00:00',
        'linked  operator  disabled     –                    2026-11-01 10:00:00',
        'bob     operator  disabled     –                    2026-11-01 10:00:00',
        '',
      ].join('\n'),
    )
    expect(stderr).toBe('3 users\n')
    expect(piped.split('\n')[0]).toBe('Mia\toperator\tpassword\t2026-11-29T14:02:07.000Z\t2026-11-01T10:00:00.000Z')
    expect(JSON.parse(json).people[0]).toEqual({
      id: expect.any(String),
      name: 'Mia',
      role: 'operator',
      has_password: true,
      created_at: '2026-11-01T10:00:00.000Z',
      disabled_at: null,
      last_signed_in_at: '2026-11-29T14:02:07.000Z',
    })
    expect(table + piped + json).not.toContain('argon2id')
  })
})

describe('a password that is typed or piped', () => {
  /** A terminal's two ends, as far as they are used. */
  function terminal() {
    const modes: boolean[] = []
    const input = Object.assign(new PassThrough(), {
      isTTY: true,
      isRaw: false,
      setRawMode: (isRaw: boolean) => modes.push(isRaw),
    })
    const output = new PassThrough()
    let shown = ''
    output.on('data', (text) => {
      shown += text
    })
    // The read functions of a terminal are all that is used of it.
    return { input: input as unknown as NodeJS.ReadStream, typing: input, output, modes, shown: () => shown }
  }

  test('from a pipe it is the first line, without its end', async () => {
    const input = new PassThrough()
    input.end('correct horse battery\r\nsomething else')

    expect(await readNewPassword(input as unknown as NodeJS.ReadStream, new PassThrough(), true)).toEqual({
      password: 'correct horse battery',
    })
  })

  test('too short a one is refused, from a pipe and from a terminal', async () => {
    const input = new PassThrough()
    input.end('short\n')

    expect(await readNewPassword(input as unknown as NodeJS.ReadStream, new PassThrough(), true)).toEqual({
      problem: 'must have at least 12 characters',
    })
  })

  test('at a terminal it is asked for twice, can be corrected, and is never shown', async () => {
    const { input, typing, output, modes, shown } = terminal()

    const reading = readNewPassword(input, output, false)
    typing.write('correct horse batterX\u007fy\r')
    await expect.poll(shown).toContain('Once more: ')
    typing.write('correct horse battery\r')

    expect(await reading).toEqual({ password: 'correct horse battery' })
    expect(shown()).toBe('New password: \nOnce more: \n')
    expect(modes).toEqual([true, false, true, false])
  })

  test('two that differ, a Ctrl-C, and no terminal at all give none', async () => {
    const differing = terminal()
    const reading = readNewPassword(differing.input, differing.output, false)
    differing.typing.write('correct horse battery\r')
    await expect.poll(differing.shown).toContain('Once more: ')
    differing.typing.write('correct horse bakery\r')
    const interrupted = terminal()
    const ending = readNewPassword(interrupted.input, interrupted.output, false)
    interrupted.typing.write('correct\u0003')

    expect(await reading).toEqual({ problem: 'the two are not the same' })
    expect(await ending).toEqual({ problem: 'interrupted' })
    expect(interrupted.modes).toEqual([true, false])
    expect(await readNewPassword(new PassThrough() as unknown as NodeJS.ReadStream, new PassThrough(), false)).toEqual({
      problem: 'there is no terminal to type it at; pipe it in with --password-stdin, or take --link',
    })
  })
})
