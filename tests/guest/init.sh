#!/bin/bash
# Runs the order of the guest: unpacks the archive on the second disk, runs its order.sh in the checkout, and writes an
# archive of the folder results to the third disk. Then it switches the guest off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
for folder in /dev/shm /run /tmp; do
    mount -t tmpfs tmpfs "$folder"
done
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -sfn /proc/self/fd /dev/fd
for switch in all default; do
    echo 1 >"/proc/sys/net/ipv6/conf/$switch/disable_ipv6" # as in the sandbox of a run
done
ip link set lo up
modprobe tun
ulimit -n 65536
mkdir -p /guest/results
tar -x -f /dev/vdb -C /guest
export PYTHONPATH=/guest/checkout TRELLIS_GUEST=1 TRELLIS_RESULTS=/guest/results
cd /guest/checkout || exit 1
bash /guest/order.sh >/guest/results/output 2>&1
echo $? >/guest/results/status
tar -c -C /guest results >/dev/vdc
sync
echo o >/proc/sysrq-trigger
sleep 60
