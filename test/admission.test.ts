import { describe, expect, test } from 'vitest'
import { readConfig, type Source } from '../src/config.ts'
import { createAdmission } from '../src/events/admission.ts'

// GitHub never delivers again by itself.
const config = readConfig({
  sources: {
    shop: { provider: 'stripe', secrets: ['whsec_of_the_shop'] },
    blog: { provider: 'stripe', secrets: ['whsec_of_the_blog'] },
    code: { provider: 'github', secrets: ['secret_of_the_code'] },
  },
})
const source = (name: string) => config.sources.get(name) as Source // named above
const [shop, blog, code] = [source('shop'), source('blog'), source('code')]
const MIB = 1024 * 1024
const inTime = () => 0

/** Enters until it is refused; answers what gives each place back. */
function fill(admission: ReturnType<typeof createAdmission>, by: Source, bytes = 0): (() => void)[] {
  const left: (() => void)[] = []
  for (let leave = admission.enter(by, bytes); leave; leave = admission.enter(by, bytes)) left.push(leave)
  return left
}

describe('I18 requests under way', () => {
  test('are bounded whatever comes', () => {
    const admission = createAdmission(inTime, { requests: 80, bytes: MIB, requestsInCalm: 1_000 })

    const entered = [shop, blog, code, shop, blog, code].flatMap((by) => fill(admission, by))

    expect(entered.length).toBeLessThanOrEqual(80)
    expect(entered.length).toBeGreaterThan(60)
  })

  test('of one noisy source leave places for another, which can take as many in the end', () => {
    const admission = createAdmission(inTime, { requests: 80, bytes: MIB, requestsInCalm: 1_000 })
    const noisy = fill(admission, shop)
    const quiet = fill(admission, blog)

    // The noisy one asks for each place that comes free, before the other does.
    for (let times = 0; times < 200; times += 1) {
      noisy.shift()?.()
      const again = admission.enter(shop, 0)
      if (again) noisy.push(again)
      const other = admission.enter(blog, 0)
      if (other) quiet.push(other)
    }

    // 70 of the 80 places are theirs, of which each may have twice what it leaves free: 28, 28 and 14.
    expect([noisy.length, quiet.length]).toEqual([28, 28])
  })

  test('of a source alone may take more than half of all places', () => {
    expect(fill(createAdmission(inTime, { requests: 1_024, bytes: MIB, requestsInCalm: 1_000 }), shop).length).toBeGreaterThan(
      512,
    )
  })

  test('of a source that is never delivered again are refused last', () => {
    const admission = createAdmission(inTime, { requests: 80, bytes: MIB, requestsInCalm: 1_000 })
    for (let times = 0; times < 20; times += 1) for (const by of [shop, blog]) fill(admission, by)
    let entered = 0
    while (admission.enter(code, 0)) {
      entered += 1
      if (admission.enter(shop, 0) ?? admission.enter(blog, 0)) expect.fail('the others came in')
    }

    // Of 70 places the others have 47 and 16, each twice what it left free; so many of the 17 that are left of all 80 are twice the rest.
    expect(entered).toBe(12)
  })

  test('give their places back', () => {
    const admission = createAdmission(inTime, { requests: 80, bytes: MIB, requestsInCalm: 1_000 })
    const first = fill(admission, shop)
    for (const leave of first) leave()

    expect(fill(admission, shop)).toHaveLength(first.length)
  })
})

describe('I18 requests under way whose commit is late', () => {
  const late = () => 201

  test('let nothing more in, but up to the number that may wait whatever storage does', () => {
    const admission = createAdmission(late, { requests: 80, bytes: MIB, requestsInCalm: 20 })

    expect(fill(admission, shop)).toHaveLength(20)
  })

  test('let more in as soon as they are in time again', () => {
    let delay = 201
    const admission = createAdmission(() => delay, { requests: 80, bytes: MIB, requestsInCalm: 20 })
    fill(admission, shop)
    delay = 200

    expect(admission.enter(shop, 0)).toBeTypeOf('function')
  })

  test('let in a source that has less than its part of them, and one that is never delivered again', () => {
    const admission = createAdmission(late, { requests: 80, bytes: MIB, requestsInCalm: 20 })
    fill(admission, shop)

    expect(fill(admission, blog)).not.toEqual([])
    expect(admission.enter(shop, 0)).toBeUndefined()
    expect(fill(admission, code).length).toBeGreaterThan(20)
  })
})

describe('I18 the bytes of bodies under way', () => {
  test('are bounded, with some kept for sources that are never delivered again', () => {
    const admission = createAdmission(inTime, { requests: 1_000, bytes: 64 * MIB, requestsInCalm: 1_000 })

    const ordinary = [...fill(admission, shop, MIB), ...fill(admission, blog, MIB)]
    const once = fill(admission, code, MIB)

    expect([ordinary.length, once.length]).toEqual([56, 8])
  })

  test('of large bodies of one source leave room for the small ones, and for large ones of another', () => {
    const admission = createAdmission(inTime, { requests: 1_000, bytes: 64 * MIB, requestsInCalm: 1_000 })
    fill(admission, shop, 8 * MIB)

    expect(admission.enter(shop, 8 * MIB)).toBeUndefined()
    expect(admission.enter(shop, 2_048)).toBeTypeOf('function')
    expect(admission.enter(blog, 5 * MIB)).toBeTypeOf('function')
  })

  test('larger than all there is come in alone', () => {
    const admission = createAdmission(inTime, { requests: 1_000, bytes: 64 * MIB, requestsInCalm: 1_000 })

    const leave = admission.enter(shop, 100 * MIB)

    expect(admission.enter(blog, 2_048)).toBeUndefined()
    leave?.()
    expect(admission.enter(blog, 2_048)).toBeTypeOf('function')
    expect(admission.enter(shop, 100 * MIB)).toBeUndefined()
  })
})
