import { defineConfig, env, key } from 'oncehook'

// Lemon Squeezy gives its events no ID. The business objects have one each, which is all that a key needs.
export default defineConfig({
  sources: {
    lemonsqueezy: { provider: 'lemonsqueezy', secrets: env.list('LEMONSQUEEZY_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'lemonsqueezy',
      type: 'order_created',
      email: ({ data: { id, attributes } }) =>
        attributes.status === 'paid' && {
          key: key('order', id, 'paid'),
          to: attributes.user_email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'lemonsqueezy',
      type: 'subscription_payment_failed',
      email: ({ data: { id, attributes } }) => ({
        key: key('subscription invoice', id, 'failed'),
        to: attributes.user_email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'lemonsqueezy',
      type: 'order_refunded',
      email: ({ data: { id, attributes } }) => ({
        key: key('order', id, 'refunded'),
        to: attributes.user_email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'lemonsqueezy',
      type: 'subscription_expired',
      // Cancelled is not yet over: it expires at the end of the paid period.
      email: ({ data: { id, attributes } }) => ({
        key: key('subscription', id, 'ended'),
        to: attributes.user_email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
  ],
})
