#!/bin/busybox sh
# The first program of the guest: makes a root file system in memory above the read-only image, and enters it.
/bin/busybox mkdir -p /proc /dev /lower /upper /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /order); do
    /bin/busybox insmod "/modules/$module"
done
/bin/busybox mount -o ro /dev/vda /lower
/bin/busybox mount -t tmpfs -o size=90% upper /upper
/bin/busybox mkdir /upper/data /upper/work
/bin/busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work overlay /root
/bin/busybox mount -t devtmpfs dev /root/dev
exec /bin/busybox switch_root /root /sbin/guest-init
