import type { Source } from '../config.ts'
import { providers } from '../providers/registry.ts'

/** What may be under way at once, before anybody knows whether it is signed. */
export interface AdmissionLimits {
  requests: number
  bytes: number
  /** Up to here they may wait for as long as storage takes: a disk that pauses for a moment is no overload. */
  requestsInCalm: number
}

export interface Admission {
  /** Takes a place for a request whose body may come to this many bytes; undefined where there is none, else what gives it back. */
  enter(source: Source, bytes: number): (() => void) | undefined
}

/** More requests than there can be connections, so that one source alone is bound by its delay: what comes in time is no overload. */
const USUAL: AdmissionLimits = { requests: 4_096, bytes: 64 * 1024 * 1024, requestsInCalm: 256 }

/** What waits longer, with many behind it, tells that more comes in than is got through. */
const LONGEST_DELAY_MS = 200

/** What is kept free for the sources whose providers don't deliver again by themselves, so that they are refused last. */
const KEPT_FREE = 1 / 8
/** A source may have this many times the places that it leaves free: however many it asks for, the others find some. */
const SHARE_OF_FREE = 2
/** Of the bytes a source may have this part, but that small bodies need only fit in. */
const PART_OF_BYTES = 7 / 8
const SMALL = 64 * 1024

/**
 * Bounds the requests and bytes that are under way, and how long the former wait, so that memory is bounded at any load, what is
 * taken is answered soon, and no source takes the places of all the others.
 */
export function createAdmission(delayMs: () => number, limits: AdmissionLimits = USUAL): Admission {
  const all = { requests: 0, bytes: 0 }
  const bySource = new Map<string, typeof all>()

  /** Of those who make it late, and not of those who have less than their part of what is under way. */
  const isLate = (own: typeof all) =>
    all.requests >= limits.requestsInCalm && own.requests * (bySource.size + 1) >= all.requests && delayMs() > LONGEST_DELAY_MS

  const hasPlace = (source: Source, own: typeof all, bytes: number) => {
    const isOnce = deliversOnce(source)
    if (!isOnce && isLate(own)) return false
    const share = isOnce ? 1 : 1 - KEPT_FREE
    const free = limits.requests * share - all.requests
    if (own.requests >= free * SHARE_OF_FREE) return false
    // Larger than all there is, as a source may be set up to take: alone or never.
    if (all.bytes === 0) return true
    const most = limits.bytes * share
    return all.bytes + bytes <= most && (bytes <= SMALL || own.bytes + bytes <= most * PART_OF_BYTES)
  }

  return {
    enter(source, bytes) {
      const own = bySource.get(source.name) ?? { requests: 0, bytes: 0 }
      if (!hasPlace(source, own, bytes)) return undefined
      // By name, and only while it has something under way: a reload may bring other sources.
      bySource.set(source.name, own)
      for (const counts of [all, own]) {
        counts.requests += 1
        counts.bytes += bytes
      }
      return () => {
        for (const counts of [all, own]) {
          counts.requests -= 1
          counts.bytes -= bytes
        }
        if (own.requests === 0) bySource.delete(source.name)
      }
    },
  }
}

const deliversOnce = ({ provider }: Source) => providers.get(provider.name)?.guide.deliversOnce === true
