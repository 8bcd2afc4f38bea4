import { argon2Sync } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createPasswords, newPassword, PasswordsBusyError } from '../src/ops/passwords.ts'

const passwords = createPasswords()

/** Hashing that ends when it is told to. */
function heldPasswords() {
  const started: (() => void)[] = []
  const held = createPasswords(() => new Promise((done) => started.push(() => done(Buffer.alloc(32)))))
  return { started, held }
}

describe('hashes', () => {
  test('are argon2id over 19 MiB in 2 passes and 1 lane, salted, as a text that other programs read', async () => {
    const [one, two] = [await passwords.hash('correct horse battery'), await passwords.hash('correct horse battery')]

    const [, salt = '', hash = ''] = /^\$argon2id\$v=19\$m=19456,t=2,p=1\$([\w+/]{22})\$([\w+/]{43})$/.exec(one) ?? []
    expect(one).not.toBe(two)
    const expected = argon2Sync('argon2id', {
      message: 'correct horse battery',
      nonce: Buffer.from(salt, 'base64'),
      parallelism: 1,
      tagLength: 32,
      memory: 19_456,
      passes: 2,
    })
    expect(Buffer.from(hash, 'base64')).toEqual(expected)
  })

  test('only the right password is right, and nothing is right where there is no hash', async () => {
    const hash = await passwords.hash('correct horse battery')

    expect(await passwords.check('correct horse battery', hash)).toEqual({ isRight: true })
    expect(await passwords.check('correct horse batterY', hash)).toEqual({ isRight: false })
    expect(await passwords.check('', hash)).toEqual({ isRight: false })
    expect(await passwords.check('correct horse battery', undefined)).toEqual({ isRight: false })
  })

  test('the same letters, composed or not, are the same password', async () => {
    const hash = await passwords.hash('caf\u00e9 au lait chaud')

    expect(await passwords.check('cafe\u0301 au lait chaud', hash)).toEqual({ isRight: true })
  })

  test('a hash of less cost is right, and comes with one of today', async () => {
    const salt = Buffer.alloc(16, 7)
    const old = argon2Sync('argon2id', {
      message: 'long enough it is',
      nonce: salt,
      parallelism: 1,
      tagLength: 32,
      memory: 64,
      passes: 1,
    })
    const text = `$argon2id$v=19$m=64,t=1,p=1$${salt.toString('base64').replace(/=+$/, '')}$${old.toString('base64').replace(/=+$/, '')}`

    const { isRight, newHash = '' } = await passwords.check('long enough it is', text)

    expect(isRight).toBe(true)
    expect(newHash).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
    expect(await passwords.check('long enough it is', newHash)).toEqual({ isRight: true })
    expect(await passwords.check('long enough it isn’t', text)).toEqual({ isRight: false })
  })
})

describe('many at once', () => {
  test('I18 two hashes run, twenty wait, and what is beyond is refused at once; those that wait are done in order', async () => {
    const { started, held } = heldPasswords()
    const asked = Array.from({ length: 22 }, () => held.hash('x'))

    await expect(held.hash('x')).rejects.toThrow(PasswordsBusyError)
    expect(started).toHaveLength(2)
    started[0]?.()
    await asked[0]
    expect(started).toHaveLength(3)
    for (let index = 1; index < 22; index += 1) {
      started[index]?.()
      await asked[index]
    }

    expect(started).toHaveLength(22)
    const after = held.hash('x')
    expect(started).toHaveLength(23)
    started[22]?.()
    await after
  })

  test('one that fails makes room for the next', async () => {
    const failing = createPasswords(() => Promise.reject(new Error('no memory')))

    for (let round = 0; round < 5; round += 1) await expect(failing.hash('x')).rejects.toThrow('no memory')
  })
})

describe('a new password', () => {
  test.each(['', 'elevenchars', '\u{1f600}'.repeat(11), 'x'.repeat(201), 'lone surrogate \ud800'])('%j is refused', (text) => {
    expect(newPassword.safeParse(text).success).toBe(false)
  })

  test.each(['twelve chars', 'aaaaaaaaaaaa', 'x'.repeat(200), '\u{1f600}'.repeat(12)])('%j is taken', (text) => {
    expect(newPassword.safeParse(text).success).toBe(true)
  })
})
